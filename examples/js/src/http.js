// One HTTP request and its response, over `wasi:http`. The engine's own `fetch` works as well, but
// does not tell a request that the job does not allow from a lost connection.

import { handle } from 'wasi:http/outgoing-handler@0.2.12';
import { Fields, OutgoingBody, OutgoingRequest } from 'wasi:http/types@0.2.12';

/**
 * @typedef {import('wasi:http/types@0.2.12').FutureIncomingResponse} FutureIncomingResponse
 * @typedef {import('wasi:http/types@0.2.12').IncomingResponse} IncomingResponse
 */

/** A longer response is an error, before it fills the memory. */
const MAX_RESPONSE = 16 << 20;
/** `blocking-write-and-flush` takes no more at once. */
const CHUNK = 4096;

/** No response was had. */
export class NoResponse extends Error {
  /** @param {string} why @param {{ denied?: boolean, retryable?: boolean }} [kind] */
  constructor(why, { denied = false, retryable = false } = {}) {
    super(why);
    this.denied = denied;
    this.retryable = retryable;
  }
}

/**
 * What the host hands out is given back at the end of its scope (`using`), not whenever the engine
 * collects garbage: it may be asked for only so much.
 * @param {URL} url
 * @param {Record<string, string>} headers
 * @param {Uint8Array} body
 * @returns {import('./answer.js').Response}
 */
export function post(url, headers, body) {
  const request = new OutgoingRequest(fields({ ...headers, 'content-length': String(body.length) }));
  request.setMethod({ tag: 'post' });
  request.setScheme({ tag: url.protocol === 'https:' ? 'HTTPS' : 'HTTP' });
  request.setAuthority(url.host);
  request.setPathWithQuery(url.pathname + url.search);
  try {
    const outgoing = request.body();
    using future = handle(request, undefined);
    write(outgoing, body);
    using answered = wait(future);
    return {
      status: answered.status(),
      headers: headersOf(answered),
      text: read(answered),
    };
  } catch (error) {
    throw noResponse(error);
  }
}

/** @param {FutureIncomingResponse} future */
function wait(future) {
  using ready = future.subscribe();
  ready.block();
  const answered = future.get();
  if (answered?.tag !== 'ok') throw new NoResponse('the response is gone', { retryable: true });
  if (answered.val.tag === 'err') throw answered.val.val;
  return answered.val.val;
}

/** @param {IncomingResponse} response */
function headersOf(response) {
  using fields = response.headers();
  const decoder = new TextDecoder();
  /** @type {[string, string][]} */
  const entries = fields.entries().map(([name, value]) => [name, decoder.decode(value)]);
  return new Headers(entries);
}

/** @param {Record<string, string>} headers */
function fields(headers) {
  const encoder = new TextEncoder();
  return Fields.fromList(Object.entries(headers).map(([name, value]) => [name, encoder.encode(value)]));
}

/**
 * A server may answer before it has read all of it, and hang up: that shows in the response, or in
 * that there is none.
 * @param {OutgoingBody} body @param {Uint8Array} bytes
 */
function write(body, bytes) {
  try {
    using stream = body.write();
    for (let from = 0; from < bytes.length; from += CHUNK) {
      stream.blockingWriteAndFlush(bytes.subarray(from, from + CHUNK));
    }
  } catch {
    body[Symbol.dispose]();
    return;
  }
  try {
    OutgoingBody.finish(body, undefined);
  } catch {
    // The same.
  }
}

/** @param {IncomingResponse} response */
function read(response) {
  using body = response.consume();
  using stream = body.stream();
  const decoder = new TextDecoder();
  let text = '';
  let length = 0;
  for (;;) {
    let chunk;
    try {
      chunk = stream.blockingRead(65536n);
    } catch (error) {
      if (payload(error)?.tag === 'closed') return text + decoder.decode();
      throw new NoResponse('the response broke off', { retryable: true });
    }
    length += chunk.length;
    if (length > MAX_RESPONSE) throw new NoResponse(`the response is longer than ${MAX_RESPONSE >> 20} MiB`);
    text += decoder.decode(chunk, { stream: true });
  }
}

/** What an import failed with: the error of the WIT, in an `Error` of the engine. @param {any} error */
const payload = (error) => error?.payload ?? error;

/** @param {unknown} error */
function noResponse(error) {
  if (error instanceof NoResponse) return error;
  const code = payload(error)?.tag ?? String(error);
  const denied = ['HTTP-request-denied', 'destination-IP-prohibited'].includes(code);
  const invalid = /^HTTP-request-(URI|method|header|trailer|body)/.test(code);
  return new NoResponse(code, { denied, retryable: !denied && !invalid });
}
