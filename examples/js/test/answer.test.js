import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answer } from '../src/answer.js';

const items = ['a', 'b', 'c'].map((key, i) => ({ index: BigInt(10 + i), key, data: new Uint8Array() }));

/** What a batch comes to when the server answers so: a count, or the error. */
function answered(status, headers, text, batch = items) {
  try {
    return answer(batch, { status, headers: new Headers(headers), text });
  } catch (error) {
    // A thrown `Error` would trap in the component.
    assert.ok(!(error instanceof Error), error);
    return error;
  }
}

test('successes say how many were written', () => {
  for (const [status, text, expected] of [
    [200, '{"written": 2}', 2n],
    [200, '{"written": 0}', 0n],
    [201, '', 3n],
    [202, 'accepted', 3n],
    [204, 'null', 3n],
    [200, '{"written": -1}', 3n],
    [200, '{"written": "2"}', 3n],
  ]) {
    assert.equal(answered(status, {}, text), expected, `${status} ${text}`);
  }
});

test('statuses map to the contract', () => {
  const failed = (message, retryable) => ({ tag: 'failed', val: { message, retryable } });
  const limited = (message, retryAfterMs) => ({ tag: 'rate-limited', val: { message, retryAfterMs } });
  const date = 'Sun, 06 Nov 1994 08:49:37 GMT';
  const later = 'Sun, 06 Nov 1994 08:49:47 GMT';
  for (const [status, headers, text, expected] of [
    [413, {}, '', { tag: 'too-large', val: 'HTTP 413' }],
    [401, {}, 'who?', { tag: 'fatal', val: 'HTTP 401: who?' }],
    [403, {}, '', { tag: 'fatal', val: 'HTTP 403' }],
    [422, {}, '{"error":"row k2: bad value"}', failed('HTTP 422: row k2: bad value', false)],
    [404, {}, '\n gone \n', failed('HTTP 404: gone', false)],
    [302, {}, '', failed('HTTP 302', false)],
    [500, {}, '', failed('HTTP 500', true)],
    [503, {}, '', failed('HTTP 503', true)],
    [503, { 'retry-after': 'soon' }, '', failed('HTTP 503', true)],
    [503, { 'retry-after': '2' }, '', limited('HTTP 503', 2000n)],
    [429, {}, '', limited('HTTP 429', undefined)],
    [429, { 'retry-after': '0' }, '', limited('HTTP 429', 0n)],
    [429, { 'retry-after': '-1' }, '', limited('HTTP 429', undefined)],
    [429, { 'retry-after': '9'.repeat(30) }, '', limited('HTTP 429', 2n ** 64n - 1n)],
    [429, { date, 'retry-after': later }, '', limited('HTTP 429', 10000n)],
    [429, { 'retry-after': date }, '', limited('HTTP 429', 0n)],
  ]) {
    assert.deepEqual(answered(status, headers, text), expected, `${status} ${JSON.stringify(headers)}`);
  }
  assert.equal(answered(400, {}, '𝄞'.repeat(5000)).val.message, `HTTP 400: ${'𝄞'.repeat(200)}`);
});

test('a 207 lists the items that failed', () => {
  const of = (...items) => JSON.stringify({ items });
  const status = (key, status, message) => ({ key, status, message });
  assert.equal(answered(207, {}, of(status('a', 200), status('b', 201), status('c', 200))), 3n);
  assert.deepEqual(answered(207, {}, of(status('a', 422, 'bad row'), status('b', 200), status('c', 503))), {
    tag: 'partial',
    val: [
      { index: 10n, message: 'HTTP 422: bad row', retryable: false },
      { index: 12n, message: 'HTTP 503: ', retryable: true },
    ],
  });
  // Another order, and one left out.
  assert.deepEqual(answered(207, {}, of(status('c', 429), status('a', 200))), {
    tag: 'partial',
    val: [
      { index: 11n, message: 'the server gave no status for it', retryable: true },
      { index: 12n, message: 'HTTP 429: ', retryable: true },
    ],
  });
  for (const text of ['', '[]', 'null', '{"items":[{"key":1}]}', '{"items":[null]}']) {
    assert.match(answered(207, {}, text).val.message, /^HTTP 207 without/, text);
  }
});

test('two items of one key have their own status', () => {
  const twins = items.slice(0, 2).map((item) => ({ ...item, key: 'k' }));
  const text = '{"items":[{"key":"k","status":200},{"key":"k","status":422,"message":"no"}]}';
  assert.deepEqual(answered(207, {}, text, twins).val, [{ index: 11n, message: 'HTTP 422: no', retryable: false }]);
});
