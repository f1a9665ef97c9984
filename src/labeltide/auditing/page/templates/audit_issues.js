// The ranked labels to check: filter, turn pages, download.
const issues = data.issues;
const PER_PAGE = window.matchMedia('(max-width: 46rem)').matches ? 25 : 50; // half as many cards on a phone
let chosen = [];
let page = 0;
const order = Array.from({ length: issues.shown }, (_, index) => index);

// How the cells of a column look: by its name where it has a form of its own, else by what it holds.
const forms = { row: (value) => counted(value + data.rowBase), probability_right: sureness, reason: reasonElement };
function cellOf(column, value) {
  if (column.words) {
    if (value < 0) return column.name === 'reason' ? '' : 'none';
    if (column.words === 'class') return classElement(value);
    const text = words[column.words][value];
    return forms[column.name] ? forms[column.name](text) : nameElement(text, 28);
  }
  if (forms[column.name]) return forms[column.name](value);
  if (value === null) return 'none';
  if (typeof value === 'string') return nameElement(value, 28);
  return column.holds === 'chance' ? chance(value) : column.holds === 'count' ? counted(value) : scaled(value);
}
const columns = Object.entries(data.headings).map(([name, heading]) => {
  const column = data.columns.find((each) => each.name === name);
  return [heading, column.holds === 'text' ? name : `number ${name}`, (i) => cellOf(column, issues[name][i])];
});
columns.push(['Timeline', 'act', (i) => showButton(i)]);

function sureness(right) {
  if (right === null) return 'unknown';
  const bar = element('i', { class: 'bar', style: `--part: ${(100 * (1 - right)).toFixed(0)}%` });
  return element('span', {}, bar, chance(1 - right));
}
// One line until it is opened, so that many labels fit on a screen; what was recorded has a column of its own.
function reasonElement(reason) {
  const why = reason.replace(/^recorded .*?, but /, '');
  return element('details', { class: 'folded' }, element('summary', {}, shorten(why, 160)));
}
function showButton(i) {
  const at = issues.timeline[i];
  if (at < 0) return '';
  const button = element('button', { type: 'button', 'aria-label': `Show rank ${issues.rank[i]} in its timeline` }, 'Show');
  button.addEventListener('click', () => window.dispatchEvent(new CustomEvent('show-step', { detail: { at, step: issues.step[i] } })));
  return button;
}

function fillChoice(id, values, texts, missing) {
  const select = byId(id);
  if (!select) return;
  const found = [...new Set(values)].sort((a, b) => a - b);
  for (const value of found) select.append(element('option', { value }, value < 0 ? missing : shorten(texts[value], 60)));
}

function filtered() {
  const value = (id) => (byId(id) ? byId(id).value : '');
  const [recorded, suggested, annotator] = ['recorded', 'suggested', 'annotator'].map((name) => value(`filter-${name}`));
  const least = Number(value('filter-sure')) / 100;
  const text = value('filter-sequence').trim().toLowerCase();
  const holds = text && words.sequence.map((name) => name.toLowerCase().includes(text));
  return order.filter((i) =>
    (recorded === '' || issues.recorded[i] === Number(recorded)) &&
    (suggested === '' || issues.suggested[i] === Number(suggested)) &&
    (annotator === '' || issues.annotator[i] === Number(annotator)) &&
    (least === 0 || (issues.probability_right[i] !== null && 1 - issues.probability_right[i] >= least - 1e-9)) &&
    (!text || (issues.sequence[i] >= 0 && holds[issues.sequence[i]])));
}

function showPage() {
  const pages = Math.max(1, Math.ceil(chosen.length / PER_PAGE));
  page = Math.min(Math.max(page, 0), pages - 1);
  const rows = chosen.slice(page * PER_PAGE, (page + 1) * PER_PAGE).map((i) =>
    element('tr', { role: 'row' }, ...columns.map(([name, look, cell]) => element('td', { role: 'cell', class: look, 'data-head': name }, cell(i)))));
  byId('issues-table').tBodies[0].replaceChildren(...rows);
  byId('page-shown').textContent = `Page ${counted(page + 1)} of ${counted(pages)}`;
  for (const button of byId('pager').querySelectorAll('button')) {
    const isBack = ['first', 'back'].includes(button.dataset.page);
    button.disabled = isBack ? page === 0 : page === pages - 1;
  }
}

function refresh() {
  byId('filter-sure-shown').textContent = `${byId('filter-sure').value} %`;
  chosen = filtered();
  page = 0;
  const of = issues.shown < issues.total ? `the first ${counted(issues.shown)}` : counted(issues.shown);
  byId('issues-count').textContent = chosen.length === issues.shown
    ? `${issues.shown < issues.total ? 'The first ' : ''}${counted(chosen.length)} labels to check`
    : `${counted(chosen.length)} of ${of} labels chosen`;
  byId('download').disabled = chosen.length === 0;
  showPage();
}

// Spreadsheet programs run cells that begin like a formula: those get an apostrophe, as in _files.py.
const FORMULA = /^[\s\p{Z}\p{C}"'`\u201c\u201d\u2018\u2019]*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[ ]*[\t\r\n]/u;
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;
const INSIDE = /([,;\t\r\n|"'][\s\p{Z}\p{C}"']*)([=@\uff1d\uff20])/gu;
const INSIDE_WITH_SIGNS = /([,;\t\r\n|"'][\s\p{Z}\p{C}"']*)([=+\-@\uff1d\uff0b\uff0d\uff20])/gu;
const HARMFUL = /[(|!\uff08\uff5c\uff01]/;
function csvCell(value) {
  if (value === null || value === undefined) return '';
  if (typeof value === 'number') return String(value);
  const inside = NUMBER.test(value) ? value : value.replace(HARMFUL.test(value) ? INSIDE_WITH_SIGNS : INSIDE, "$1'$2");
  const text = FORMULA.test(value) && !NUMBER.test(value) ? "'" + inside : inside;
  return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
}
function csv(rows) {
  const head = data.columns.map((column) => column.name);
  const lines = rows.map((i) => data.columns.map((column) => {
    const value = issues[column.name][i];
    return csvCell(column.words ? words[column.words][value] : value);
  }).join(','));
  return '\ufeff' + [head.join(','), ...lines].join('\r\n') + '\r\n'; // the mark lets spreadsheets read it as UTF-8
}
function download() {
  const address = URL.createObjectURL(new Blob([csv(chosen)], { type: 'text/csv;charset=utf-8' }));
  const link = element('a', { href: address, download: 'issues-selection.csv' });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

if (issues.shown) {
  const heads = columns.map(([name, look]) => element('th', { scope: 'col', class: look }, name));
  byId('issues-table').tHead.append(element('tr', {}, ...heads));
  fillChoice('filter-recorded', issues.recorded, words.class, 'none');
  fillChoice('filter-suggested', issues.suggested, words.class, 'none');
  fillChoice('filter-annotator', issues.annotator, words.annotator, 'not named');
  const form = byId('filters');
  form.addEventListener('input', refresh);
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('reset', () => setTimeout(refresh));
  byId('download').addEventListener('click', download);
  byId('pager').addEventListener('click', (event) => {
    const go = event.target.dataset.page;
    if (!go) return;
    const last = Math.ceil(chosen.length / PER_PAGE) - 1;
    page = { first: 0, back: page - 1, on: page + 1, last }[go];
    showPage();
  });
  form.reset(); // browsers keep old choices over a reload
  refresh();
}
