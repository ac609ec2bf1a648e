// What the server's answer means for a batch. Knows nothing of the host, so it is tested in Node.
//
// | Server                        | Answer                                                    |
// |-------------------------------|-----------------------------------------------------------|
// | 207                           | written, but for the items whose own status is not 2xx;   |
// |                               | 429 and 5xx are sent again                                |
// | other 2xx                     | `written` of the body if it has one, else all items       |
// | 401, 403                      | fatal                                                     |
// | 413                           | too large                                                 |
// | 429; 503 with Retry-After     | rate-limited                                              |
// | other 5xx, a lost connection  | failed, retryable                                         |
// | anything else                 | failed, not retryable                                     |

/**
 * @typedef {import('batchgate:batch/types@0.1.0').Item} Item
 * @typedef {import('batchgate:batch/types@0.1.0').BatchError} BatchError
 * @typedef {import('batchgate:batch/types@0.1.0').ItemFailure} ItemFailure
 * @typedef {{ status: number, headers: { get(name: string): string | null }, text: string }} Response
 */

/** @returns {BatchError} */
export const failed = (/** @type {string} */ message, retryable = false) => ({
  tag: 'failed',
  val: { message, retryable },
});

/** @returns {BatchError} */
export const fatal = (/** @type {string} */ message) => ({ tag: 'fatal', val: message });

/**
 * @param {Item[]} items
 * @param {Response} response
 * @returns {bigint} how many items were written; otherwise a `BatchError` is thrown
 */
export function answer(items, response) {
  const { status } = response;
  const wait = retryAfter(response);
  if (status === 207) return each(items, response);
  if (status >= 200 && status < 300) return written(response.text) ?? BigInt(items.length);
  const message = describe(response);
  if (status === 401 || status === 403) throw fatal(message);
  if (status === 413) throw /** @type {BatchError} */ ({ tag: 'too-large', val: message });
  if (status === 429 || (status === 503 && wait !== undefined)) {
    throw /** @type {BatchError} */ ({ tag: 'rate-limited', val: { message, retryAfterMs: wait } });
  }
  throw failed(message, status >= 500 && status < 600);
}

/** A status an item. @param {Item[]} items @param {Response} response */
function each(items, response) {
  const statuses = json(response.text)?.items;
  const isStatus = (/** @type {any} */ s) => typeof s?.key === 'string' && Number.isInteger(s.status);
  if (!Array.isArray(statuses) || !statuses.every(isStatus)) {
    throw failed('HTTP 207 without a list of statuses');
  }
  const byKey = new Map(statuses.map((status) => [status.key, status]));
  /** @type {ItemFailure[]} */
  const failures = [];
  items.forEach(({ index, key }, position) => {
    // By position first: a batch may hold two items of the same key.
    const found = statuses[position]?.key === key ? statuses[position] : byKey.get(key);
    if (found === undefined) {
      failures.push({ index, message: 'the server gave no status for it', retryable: true });
    } else if (found.status < 200 || found.status > 299) {
      const retryable = found.status === 429 || (found.status >= 500 && found.status < 600);
      failures.push({ index, message: `HTTP ${found.status}: ${found.message ?? ''}`, retryable });
    }
  });
  if (failures.length > 0) throw /** @type {BatchError} */ ({ tag: 'partial', val: failures });
  return BigInt(items.length);
}

/** `written` of a JSON body, if it is a count. @param {string} text */
function written(text) {
  const count = json(text)?.written;
  return Number.isSafeInteger(count) && count >= 0 ? BigInt(count) : undefined;
}

/**
 * How long Retry-After asks to wait, in ms: seconds, or until a date, which is measured from the
 * response's own Date if there is one.
 * @param {Response} response
 */
function retryAfter({ headers }) {
  const value = headers.get('retry-after')?.trim();
  if (!value) return undefined;
  if (/^\d+$/.test(value)) return BigInt.asUintN(64, smaller(BigInt(value) * 1000n, 2n ** 64n - 1n));
  const until = httpDate(value);
  if (Number.isNaN(until)) return undefined;
  const date = httpDate(headers.get('date') ?? '');
  return BigInt(Math.max(0, until - (Number.isNaN(date) ? Date.now() : date)));
}

/** `Date.parse` takes nearly anything for a date; an HTTP date starts with a day's name. */
const httpDate = (/** @type {string} */ text) =>
  /^(Mon|Tue|Wed|Thu|Fri|Sat|Sun)/.test(text) ? Date.parse(text) : NaN;

const smaller = (/** @type {bigint} */ a, /** @type {bigint} */ b) => (a < b ? a : b);

/** The status, and what the body says: its `error` if it is JSON with one, else its start. */
function describe(/** @type {Response} */ { status, text }) {
  const error = json(text)?.error;
  const said = (typeof error === 'string' ? error : text).trim();
  const start = [...said].slice(0, 200).join('');
  return start === '' ? `HTTP ${status}` : `HTTP ${status}: ${start}`;
}

/** @param {string} text @returns {any} */
function json(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
