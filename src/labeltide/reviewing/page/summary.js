// What the review shows: the checked share of wrong labels beside the model's, and what is still wrong.
import { byId, counted, drawn, element, nameElement, percent } from './base.js';

const GROUPS = { class: 'By recorded class', annotator: 'By annotator', clock: 'Over the clock' };

export function showSummary(found) {
  const body = byId('summary-body');
  if (found.blind) {
    body.replaceChildren(
      element('p', {}, 'While the review is blind, neither the model nor the items of the sample are shown. Everything is in review.json in the folder of the audit.'),
      decisionsLine(found),
    );
    return;
  }
  const parts = [decisionsLine(found)];
  if (found.checked) parts.push(cards(found), ...groupTables(found.checked));
  parts.push(element('ul', {}, ...found.sentences.map((sentence) => element('li', {}, sentence))));
  if (found.remaining) parts.push(...remainingParts(found.remaining));
  body.replaceChildren(...parts);
}

function decisionsLine(found) {
  const people = Object.entries(found.decisions.by_reviewer).map(([name, count]) => `\u2068${name.slice(0, 60)}\u2069 ${counted(count)}`).join(', ');
  const sample = found.sample ? ` ${counted(found.sample.reviewed)} of ${counted(found.sample.drawn)} labels of the sample are reviewed.` : '';
  return element('p', {}, `${counted(found.decisions.standing)} decisions${people ? ` (${people})` : ''}, ${counted(found.decisions.undone)} taken back, ${counted(found.disputed)} items disputed.${sample}`);
}

function card(title, answer, more) {
  return element('div', { class: 'card' }, element('h3', {}, title), element('p', { class: 'answer' }, answer), element('p', { class: 'more' }, more));
}

function cards({ checked, remaining }) {
  const all = checked.overall;
  const verdict = all.disagrees ? 'It lies outside the checked interval: they disagree.' : 'It lies within the checked interval.';
  const people = checked.people ? ` For more sequences like these: ${percent(checked.people.lower)} to ${percent(checked.people.upper)}.` : '';
  return element('div', { class: 'cards' },
    card('Wrong labels, checked', percent(all.rate), `95 % interval ${percent(all.lower)} to ${percent(all.upper)}, from ${counted(all.reviewed)} reviewed labels; it holds whatever the model got wrong, and you may watch it and stop at will. Had the number of items been fixed beforehand: ${percent(all.fixed_lower)} to ${percent(all.fixed_upper)}.${people}`),
    card('Wrong labels, according to the model', percent(all.model), verdict),
    card('Still wrong, with your decisions', `at most ${percent(remaining.decisions.bound)}`, remaining.decisions.sentence),
    card('Still wrong, with corrections too', `at most ${percent(remaining.corrections.bound)}`, 'If the corrections of the audit are applied as well as your decisions.'));
}

function groupTables(checked) {
  return Object.entries(GROUPS).filter(([name]) => checked[name] && checked[name].length).map(([name, title]) => {
    const rows = checked[name].map((entry) => element('tr', {}, element('th', { scope: 'row' }, nameElement(entry.name, 30)),
      element('td', { class: 'number' }, `${counted(entry.wrong)} of ${counted(entry.reviewed)}`),
      element('td', { class: 'number' }, entry.reviewed ? percent(entry.rate) : 'not reviewed'),
      element('td', { class: 'number' }, entry.reviewed ? `${percent(entry.lower)} to ${percent(entry.upper)}` : ''),
      element('td', { class: 'number' }, percent(entry.model)),
      element('td', { class: 'interval' }, entry.reviewed ? intervalDrawing(entry) : ''),
      element('td', { class: entry.reviewed && entry.disagrees ? 'differs' : '' }, entry.reviewed && entry.disagrees ? 'disagree' : '')));
    const heads = ['', 'Wrong', 'Checked', '95 % interval', 'Model', 'Checked ● and model ○, 0 to 100 %', ''].map((text) => element('th', { scope: 'col' }, text));
    return element('div', { class: 'scroll' }, element('table', { class: 'plain' }, element('caption', {}, element('strong', {}, title)), element('thead', {}, element('tr', {}, ...heads)), element('tbody', {}, ...rows)));
  });
}

function intervalDrawing(entry) {
  const x = (share) => (4 + 192 * share).toFixed(1);
  const svg = drawn('svg', { viewBox: '0 0 200 16', 'aria-hidden': 'true' });
  svg.append(drawn('path', { class: 'grid', d: 'M4 8H196' }), drawn('path', { class: 'range', d: `M${x(entry.lower)} 8H${x(entry.upper)}` }),
    drawn('circle', { class: 'point', cx: x(entry.rate), cy: 8, r: 4 }), drawn('circle', { class: 'model', cx: x(entry.model), cy: 8, r: 4.5 }));
  return svg;
}

function remainingParts(remaining) {
  const { curve, needed } = remaining.decisions;
  const list = needed.map((entry) => element('li', {}, `About ${counted(entry.items)} more items of the sample are expected to bring the bound to ${percent(entry.target)} (range of 80 %: ${counted(entry.low)} to ${counted(entry.high)}).`));
  return [element('h3', {}, 'How many more items would bring the bound down, if their number is fixed now'), curveDrawing(curve), element('ul', {}, ...list)];
}

function curveDrawing(curve) {
  const width = 600, height = 190, left = 46, bottom = 160;
  const most = Math.log10(curve.more[curve.more.length - 1] + 1) || 1, top = Math.max(...curve.bound, 0.01);
  const x = (more) => left + (width - left - 14) * Math.log10(more + 1) / most, y = (bound) => bottom - (bottom - 12) * bound / top;
  const svg = drawn('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'The bound on wrong labels against the number of further items' });
  for (const share of [0, top / 2, top]) svg.append(drawn('path', { class: 'grid', d: `M${left} ${y(share)}H${width - 14}` }), drawn('text', { x: left - 5, y: y(share) + 4, 'text-anchor': 'end' }, percent(share)));
  for (let more = 1; more <= curve.more[curve.more.length - 1]; more *= 10) svg.append(drawn('path', { class: 'tick', d: `M${x(more)} ${bottom}v5` }), drawn('text', { x: x(more), y: bottom + 18, 'text-anchor': 'middle' }, counted(more)));
  svg.append(drawn('path', { class: 'curve', d: curve.more.map((more, index) => `${index ? 'L' : 'M'}${x(more).toFixed(1)} ${y(curve.bound[index]).toFixed(1)}`).join('') }));
  svg.append(drawn('text', { x: (left + width) / 2, y: height - 1, 'text-anchor': 'middle' }, 'further items'));
  const figure = element('figure', { class: 'chart' });
  figure.append(svg);
  return figure;
}
