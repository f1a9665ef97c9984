// What both parts of the page use: its data, names as text, and elements made without ever reading HTML from data.
const data = JSON.parse(document.getElementById('data').textContent);
const words = data.words;
const byId = (id) => document.getElementById(id);
const SVG = 'http:' + '//www.w3.org/2000/svg'; // a name, not an address: nothing is loaded from it

// Controls and the marks that turn the direction of what follows become blanks; the middle of a long name is left out.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ufeff]+/g;
function clean(text) {
  return String(text).replace(UNSEEN, ' ').replace(/\s+/g, ' ').trim();
}
function shorten(text, limit = 40) {
  const letters = Array.from(clean(text));
  if (letters.length <= limit) return letters.join('') || 'unnamed';
  const tail = Math.floor(limit / 4);
  return letters.slice(0, limit - tail - 1).join('') + '…' + letters.slice(letters.length - tail).join('');
}
const isolated = (text, limit) => '\u2068' + shorten(text, limit) + '\u2069';

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
function drawn(tag, attributes = {}, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
function nameElement(text, limit = 40) {
  const short = shorten(text, limit);
  const whole = clean(text);
  return element('bdi', whole === short ? {} : { title: whole }, short);
}
function classElement(number) {
  if (number < 0) return document.createTextNode('none');
  return element('span', { class: 'class' }, element('i', { class: `swatch c${number % 10}` }), nameElement(words.class[number], 28));
}
// Never 0 or 100 %: no estimate is that sure.
function chance(share) {
  if (share > 0.999) return '>\u00a099.9\u00a0%';
  if (share < 0.001) return '<\u00a00.1\u00a0%';
  return (share * 100).toFixed(share > 0.99 || share < 0.01 ? 1 : 0) + '\u00a0%';
}
const counted = (amount) => amount.toLocaleString('en');
