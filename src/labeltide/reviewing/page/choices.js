// The classes as buttons: up to nine with a key each, more with a search by name or number.
import { byId, counted, element, nameElement, shorten } from './base.js';

const FEW = 9, MOST = 12;

export class Choices {
  constructor(classes, choose) {
    this.classes = classes;
    this.choose = choose;
    this.isSearched = classes.length > FEW;
    this.names = classes.map((name) => shorten(name, 200).toLowerCase());
    byId('search').hidden = !this.isSearched;
    byId('find').addEventListener('input', () => this.show());
    byId('find').addEventListener('keydown', (event) => {
      if (event.key === 'Enter') { event.preventDefault(); this.chooseFirst(); }
    });
  }

  // Recorded and suggested classes come first where not all can be shown.
  show(recorded = this.recorded, suggested = this.suggested, decided = this.decided) {
    Object.assign(this, { recorded, suggested, decided });
    const shown = this.isSearched ? this.matches() : this.classes.map((_, code) => code);
    this.shown = shown.slice(0, MOST);
    byId('classes').replaceChildren(...this.shown.map((code) => this.button(code)));
    byId('found').textContent = this.isSearched ? `${counted(shown.length)} of ${counted(this.classes.length)} classes match. Enter takes the first.` : '';
  }

  matches() {
    const text = byId('find').value.trim().toLowerCase();
    const all = this.names.map((_, code) => code);
    if (!text) return [...new Set([this.suggested, this.recorded, ...all])].filter((code) => code >= 0);
    const rank = (code) => (String(code + 1) === text ? 0 : this.names[code].startsWith(text) ? 1 : String(code + 1).startsWith(text) ? 2 : this.names[code].includes(text) ? 3 : 4);
    return all.map((code) => [rank(code), code]).filter(([order]) => order < 4).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, code]) => code);
  }

  chooseFirst() {
    if (byId('find').value.trim() && this.shown.length) this.choose(this.shown[0]);
  }

  clear() {
    byId('find').value = '';
  }

  button(code) {
    const notes = [code === this.recorded ? 'recorded' : '', code === this.suggested ? 'suggested' : ''].filter(Boolean).join(', ');
    const button = element('button', { type: 'button', class: `c${code % 10}`, 'aria-pressed': String(this.classes[code] === this.decided), 'data-class': code }, nameElement(this.classes[code], 36));
    if (notes) button.append(element('span', { class: 'note' }, notes));
    button.append(element('kbd', {}, String(code + 1)));
    if (!this.isSearched) button.setAttribute('aria-keyshortcuts', String(code + 1));
    button.addEventListener('click', () => this.choose(code));
    return button;
  }

  // Whether a key belongs to the choices.
  key(key) {
    if (/^[0-9]$/.test(key) || (this.isSearched && key === '/')) {
      if (this.isSearched) {
        byId('find').focus();
        if (key !== '/') { byId('find').value += key; this.show(); }
      } else if (Number(key) >= 1 && Number(key) <= this.classes.length) this.choose(Number(key) - 1);
      return true;
    }
    return false;
  }
}
