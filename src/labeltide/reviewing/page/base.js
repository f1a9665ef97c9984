// Elements made without ever reading HTML from data, names as visible text, and calls to the server on this machine.
export const byId = (id) => document.getElementById(id);
const SVG = 'http:' + '//www.w3.org/2000/svg'; // a name, not an address: nothing is loaded from it
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ufeff]+/g;
const TRIES = [0, 300, 900];

export function clean(text) {
  return String(text).replace(UNSEEN, ' ').replace(/\s+/g, ' ').trim();
}
// The middle of a long name is left out.
export function shorten(text, limit = 40) {
  const letters = Array.from(clean(String(text).slice(0, 20000)));
  if (letters.length <= limit) return letters.join('') || 'unnamed';
  const tail = Math.floor(limit / 4);
  return letters.slice(0, limit - tail - 1).join('') + '…' + letters.slice(letters.length - tail).join('');
}
export const isolated = (text, limit) => '\u2068' + shorten(text, limit) + '\u2069';

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
export function drawn(tag, attributes = {}, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
export function nameElement(text, limit = 40) {
  const short = shorten(text, limit), whole = clean(String(text).slice(0, 2000));
  return element('bdi', whole === short ? {} : { title: whole }, short);
}
// Never 0 or 100 %: no estimate is that sure.
export function chance(share) {
  if (share > 0.999) return '>\u00a099.9\u00a0%';
  if (share < 0.001) return '<\u00a00.1\u00a0%';
  return (share * 100).toFixed(share > 0.99 || share < 0.01 ? 1 : 0) + '\u00a0%';
}
export function percent(share) {
  return share === null || share === undefined ? 'unknown' : (share * 100).toFixed(Math.abs(share) < 0.0995 ? 1 : 0) + '\u00a0%';
}
export const counted = (amount) => amount.toLocaleString('en');

export function alarm(sentence, again) {
  const panel = byId('alert');
  panel.hidden = !sentence;
  panel.textContent = sentence || '';
  if (again) {
    const button = element('button', { type: 'button' }, 'Try again');
    button.addEventListener('click', again);
    panel.append(button);
  }
}

// A repeated request carries the same id, so that a decision is never kept twice.
async function call(path, options) {
  for (const [attempt, wait] of TRIES.entries()) {
    await new Promise((done) => setTimeout(done, wait));
    let answer;
    try {
      answer = await fetch(path, options);
    } catch {
      if (attempt < TRIES.length - 1) continue;
      throw new Error('The server does not answer, so this was not saved. Start it again with labeltide review and open the new address.');
    }
    const content = await answer.json().catch(() => ({ error: 'The server gave an answer that cannot be read.' }));
    if (!answer.ok) throw new Error(content.error || `The server refused (${answer.status}).`);
    return content;
  }
}
export const get = (path) => call(path, {});
export const post = (path, body) => call(path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
