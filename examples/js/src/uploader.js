// Posts each batch to `api_url` as a JSON array of {"key": …, "data": …}, and says what the
// server's status means for it (the table in answer.js).
//
// `data` is the item's data as text; what is not UTF-8 in it arrives as U+FFFD.

import { info } from 'batchgate:batch/call@0.1.0';
import { get } from 'wasi:config/store@0.2.0-rc.1';
import { answer, failed, fatal } from './answer.js';
import { NoResponse, post } from './http.js';

/** @typedef {import('./answer.js').Item} Item */

// A byte order mark is data like any other.
const decoder = new TextDecoder('utf-8', { ignoreBOM: true });

export const processor = {
  /**
   * What is thrown is the error of the WIT, not an `Error`: an uncaught `Error` ends the instance,
   * and leaves the fate of the batch unknown.
   * @param {Item[]} items
   * @returns {bigint} how many items were written
   */
  processBatch(items) {
    const url = apiUrl();
    const rows = items.map(({ key, data }) => ({ key, data: decoder.decode(data) }));
    const headers = {
      'content-type': 'application/json',
      'idempotency-key': info().idempotencyKey,
    };
    return answer(items, send(url, headers, new TextEncoder().encode(JSON.stringify(rows))));
  },
};

/** @param {URL} url @param {Record<string, string>} headers @param {Uint8Array} body */
function send(url, headers, body) {
  try {
    return post(url, headers, body);
  } catch (error) {
    if (!(error instanceof NoResponse)) throw failed(String(error));
    // The URL is the same for every call: none would fare better.
    if (error.denied) throw fatal(`${url} is denied: name it in [sandbox] allow_hosts in the job`);
    throw failed(`no response: ${error.message}`, error.retryable);
  }
}

function apiUrl() {
  const text = get('api_url');
  if (text === undefined) throw fatal('api_url is not set: add it to [config] in the job');
  try {
    const url = new URL(text);
    if (!/^https?:$/.test(url.protocol)) throw new TypeError('only http and https can be sent');
    return url;
  } catch (error) {
    throw fatal(`api_url ${JSON.stringify(text)}: ${error instanceof Error ? error.message : error}`);
  }
}
