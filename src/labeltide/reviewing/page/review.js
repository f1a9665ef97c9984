// The loop of a review: show an item, take a decision, keep it, go on.
import { alarm, byId, chance, counted, element, get, isolated, nameElement, post, shorten } from './base.js';
import { Choices } from './choices.js';
import { drawItem } from './draw.js';
import { showSummary } from './summary.js';

const CONTEXTS = [60, 120, 240, 480, 960];
const state = { session: null, progress: null, view: null, unit: 'stretch', mark: 0, context: 0, busy: false, stepAt: null };
const title = byId('title');
let choices;

const reviewer = () => byId('reviewer').value.trim();
const query = () => `reviewer=${encodeURIComponent(reviewer())}`;
const say = (sentence) => { byId('status').textContent = sentence; };
const ownTrack = () => state.view.window.tracks.find((track) => track.is_own);
const className = (code) => (code >= 0 ? isolated(state.session.classes[code], 40) : 'nothing');

// One thing at a time: a key pressed while a decision is being kept is not a decision about the next item.
async function alone(work) {
  if (state.busy) return;
  state.busy = true;
  document.body.setAttribute('aria-busy', 'true');
  try {
    alarm('');
    await work();
  } catch (error) {
    alarm(error.message, () => alone(work));
  } finally {
    state.busy = false;
    document.body.removeAttribute('aria-busy');
  }
}

async function start() {
  state.session = await get('api/session');
  document.title = `Review of ${shorten(state.session.table, 60)}`;
  byId('table').replaceChildren(nameElement(state.session.table, 60));
  byId('blind').hidden = !state.session.blind;
  byId('reviewer').value = state.session.reviewer;
  choices = new Choices(state.session.classes, (code) => decide('label', code));
  await begin();
}

async function begin() {
  showProgress(await get(`api/progress?${query()}`));
  await showItem(state.progress.next ?? 0);
}

function showProgress(progress) {
  state.progress = progress;
  byId('bar').max = progress.total;
  byId('bar').value = progress.done;
  const disputed = progress.disputed.length ? ` · ${counted(progress.disputed.length)} disputed` : '';
  const others = progress.others.map((other) => ` · ${isolated(other.reviewer, 20)} ${counted(other.done)}`).join('');
  byId('progress').textContent = `${counted(progress.done)} of ${counted(progress.total)} decided, ${counted(progress.left)} left${disputed}${others}`;
}

async function showItem(position, words = '') {
  const view = await get(`api/item/${position}?${query()}&context=${CONTEXTS[state.context]}`);
  const isNew = !state.view || state.view.position !== position;
  state.view = view;
  if (isNew) {
    state.unit = view.mine && view.mine.is_step ? 'step' : view.unit;
    byId('comment').value = view.mine ? view.mine.comment : '';
    choices.clear();
  }
  state.mark = view.target;
  drawAll();
  if (isNew) {
    say([words, `Item ${counted(position + 1)} of ${counted(state.progress.total)}.`].filter(Boolean).join(' '));
    if (!document.activeElement || !document.activeElement.matches('input[type="radio"], #side button')) title.focus({ preventScroll: true });
  }
}

function chosen() {
  return state.unit === 'stretch' ? state.view.stretch : [state.mark, state.mark];
}

function drawAll() {
  const { view } = state;
  const [first, last] = chosen(), times = view.window.times, track = ownTrack();
  const who = view.annotator === null ? '' : `, labels by ${isolated(view.annotator, 30)}`;
  title.textContent = `Item ${counted(view.position + 1)} of ${counted(state.progress.total)}: ${isolated(view.sequence ?? 'table', 40)}${who}`;
  const recorded = track.recorded[state.mark];
  const span = first === last ? `At time ${shorten(times[first], 40)}` : `From ${shorten(times[first], 40)} to ${shorten(times[last], 40)} (${counted(last - first + 1)} steps)`;
  byId('question').textContent = `${span}, recorded as ${className(recorded)}.`;
  byId('described').textContent = describe(view, span, recorded);
  const length = view.stretch[1] - view.stretch[0] + 1;
  byId('unit-stretch').textContent = length === 1 ? 'the whole stretch (1 step)' : `the whole stretch (${counted(length)} steps)`;
  byId('unit-step').textContent = state.mark === view.target ? 'the marked step' : 'the step at the moved mark';
  for (const input of document.getElementsByName('unit')) input.checked = input.value === state.unit;
  showModel(view.model);
  const mine = view.mine;
  choices.show(recorded, view.model ? view.model.suggested : -1, mine && mine.action === 'label' ? mine.label : null);
  byId('keep').setAttribute('aria-pressed', String(Boolean(mine) && mine.action === 'keep'));
  byId('skip').setAttribute('aria-pressed', String(Boolean(mine) && mine.action === 'skip'));
  showDecided(view);
  state.stepAt = drawItem(byId('drawing'), view, state.session.classes, [first, last], state.mark);
}

// What the drawing shows, in words.
function describe(view, span, recorded) {
  const sequence = `Sequence ${isolated(view.sequence ?? 'table', 40)}.`;
  const others = view.window.tracks.filter((track) => !track.is_own).map((track) => `${isolated(track.annotator, 30)} recorded ${className(track.recorded[state.mark])}.`).join(' ');
  const signals = view.window.signals.map((signal) => `${isolated(signal.name, 30)} ${signal.values[state.mark] ?? 'unknown'}`).join(', ');
  const model = view.model ? ` The model suggests ${className(view.model.suggested)}, ${chance(view.model.sure)}.` : '';
  return `${sequence} ${span}, recorded as ${className(recorded)}. ${others}${model}${signals ? ` At the mark: ${signals}.` : ''}`;
}

function showModel(model) {
  const panel = byId('model');
  panel.hidden = !model;
  if (!model) { panel.replaceChildren(); return; }
  const kind = model.kind === 'sample' ? 'Drawn at random, for the guarantee' : 'Likely wrong';
  const parts = [element('p', { class: 'note' }, `${kind}. The model thinks:`), element('p', { class: 'answer' }, `${className(model.suggested)}, ${chance(model.sure)}`)];
  if (model.right !== null) parts.push(element('p', {}, `Probability that the recorded label is right: ${chance(model.right)}.`));
  if (model.reason) parts.push(element('p', { class: 'note' }, shorten(model.reason, 400)));
  if (model.contested !== null && model.contested !== undefined) parts.push(element('p', { class: 'note' }, `Probability that another expert would disagree: ${chance(Number(model.contested))}.`));
  panel.replaceChildren(...parts);
}

function outcome(decision) {
  return decision.action === 'label' ? isolated(decision.label, 40) : decision.action === 'keep' ? 'keep as recorded' : 'skip';
}

function showDecided(view) {
  const parts = [];
  if (view.mine) parts.push(element('p', {}, `You decided: ${outcome(view.mine)}.`));
  for (const other of view.others) parts.push(element('p', {}, `${isolated(other.reviewer, 30)} decided: ${outcome(other)}${other.comment ? ` (${isolated(other.comment, 120)})` : ''}.`));
  if (view.is_disputed) parts.push(element('p', { class: 'disputed' }, 'Disputed: both decisions are kept.'));
  byId('decided').replaceChildren(...parts);
}

function nextOpen(position) {
  const open = state.progress.open;
  return open.find((each) => each > position) ?? open[0] ?? null;
}

function decide(action, code) {
  const { view } = state;
  const body = { position: view.position, reviewer: reviewer(), action, unit: state.unit, comment: byId('comment').value, request: crypto.randomUUID() };
  if (action === 'label') body.class = code;
  if (state.unit === 'step') body.row = ownTrack().rows[state.mark];
  const isSplit = state.unit === 'step' && state.mark !== view.target;
  const words = `Kept: ${action === 'label' ? className(code) : action === 'keep' ? 'as recorded' : 'skipped'}.`;
  alone(async () => {
    const answer = await post('api/decide', body);
    showProgress(answer.progress);
    if (isSplit) { say(`${words} Only this step; the item is still open.`); return; }
    const next = nextOpen(view.position);
    if (next === null) { await showItem(view.position); say(`${words} All items are decided. Press g for what the review shows.`); return; }
    await showItem(next, words + (answer.is_disputed ? ' It is disputed.' : ''));
  });
}

function undo() {
  alone(async () => {
    const answer = await post('api/undo', { reviewer: reviewer() });
    showProgress(answer.progress);
    if (!answer.undone) { say('There is nothing to undo.'); return; }
    state.view = null;
    await showItem(answer.position ?? 0, 'Undone.');
  });
}

function move(by) {
  const position = state.view.position + by;
  if (position < 0 || position >= state.progress.total) { say(by < 0 ? 'This is the first item.' : 'This is the last item.'); return; }
  alone(() => showItem(position));
}

function changeContext(by) {
  state.context = Math.min(CONTEXTS.length - 1, Math.max(0, state.context + by));
  alone(() => showItem(state.view.position));
}

function setUnit(unit) {
  state.unit = unit;
  if (unit === 'stretch') state.mark = state.view.target;
  drawAll();
  say(unit === 'stretch' ? 'A decision is about the stretch.' : 'A decision is about the marked step.');
}

function moveMark(step) {
  const rows = ownTrack().rows;
  const to = Math.min(rows.length - 1, Math.max(0, step));
  if (rows[to] < 0) { say('This annotator has no label there.'); return; }
  state.unit = 'step';
  state.mark = to;
  drawAll();
  say(`The mark is at ${shorten(state.view.window.times[to], 40)}.`);
}

function openSummary() {
  alone(async () => {
    showSummary(await get('api/summary'));
    byId('summary').showModal();
  });
}

function toNext() {
  const next = nextOpen(state.view.position);
  if (next === null) say('All items are decided.');
  else alone(() => showItem(next));
}

const KEYS = {
  y: () => decide('keep'), s: () => decide('skip'), u: undo, n: toNext, g: openSummary,
  t: () => setUnit(state.unit === 'stretch' ? 'step' : 'stretch'), c: () => byId('comment').focus(), '?': () => byId('help').showModal(),
  ',': () => moveMark(state.mark - 1), '.': () => moveMark(state.mark + 1), '+': () => changeContext(1), '=': () => changeContext(1), '-': () => changeContext(-1),
  ArrowLeft: () => move(-1), ArrowRight: () => move(1),
};

document.addEventListener('keydown', (event) => {
  const field = event.target;
  const isText = field.matches('textarea, input:not([type="radio"])');
  if (isText && event.key === 'Escape') { field.blur(); title.focus({ preventScroll: true }); return; }
  if (!state.view || state.busy || document.querySelector('dialog[open]')) return;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'z' && !isText) { event.preventDefault(); undo(); return; }
  if (isText || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  if (field.matches('input[type="radio"]') && event.key.startsWith('Arrow')) return; // they change the choice there
  const act = KEYS[event.key];
  if (act) { event.preventDefault(); act(); } else if (choices.key(event.key)) event.preventDefault();
});

for (const [id, key] of [['keep', 'y'], ['skip', 's'], ['undo', 'u'], ['back', 'ArrowLeft'], ['next', 'ArrowRight'], ['wider', '+'], ['closer', '-'], ['open-summary', 'g'], ['open-help', '?']]) {
  byId(id).addEventListener('click', () => { if (state.view && !state.busy) KEYS[key](); });
}
for (const input of document.getElementsByName('unit')) input.addEventListener('change', () => setUnit(input.value));
for (const button of document.querySelectorAll('dialog .close')) button.addEventListener('click', () => button.closest('dialog').close());
byId('drawing').addEventListener('click', (event) => { if (state.stepAt && !state.busy) moveMark(state.stepAt(event)); });
byId('reviewer').addEventListener('change', () => alone(async () => { state.view = null; await begin(); }));
window.addEventListener('resize', () => { if (state.view) drawAll(); });
alone(start);
