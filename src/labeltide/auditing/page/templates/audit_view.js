// Moving through a timeline with buttons, keys, mouse and fingers.
const box = byId('timeline');
const timelines = data.timelines;
let current = 0;
const view = { from: 0, to: 1, cursor: -1, stretch: null };
let isWaiting = false;
let saying = 0;

const timelineNow = () => timelines[current];
const stepsNow = () => timelineNow().times.length;
const issueSteps = (timeline) => [...new Set(timeline.tracks.flatMap((track) => track.issues))].sort((a, b) => a - b);

function paint(width) {
  box.replaceChildren(drawTimeline(timelineNow(), view, width));
  sayState();
}
function redraw() {
  if (isWaiting) return;
  isWaiting = true;
  requestAnimationFrame(() => {
    isWaiting = false;
    paint(Math.max(280, box.clientWidth - 10));
  });
}

function look(from, to) {
  const total = stepsNow();
  const size = Math.min(total, Math.max(Math.min(8, total), to - from));
  view.from = Math.min(Math.max(0, from), total - size);
  view.to = view.from + size;
  redraw();
}
function zoom(factor, share = 0.5) {
  const size = view.to - view.from;
  const centre = view.from + share * size;
  look(centre - share * size * factor, centre + (1 - share) * size * factor);
}
const scroll = (share) => look(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));

function point(step) {
  view.cursor = Math.min(stepsNow() - 1, Math.max(0, step));
  sayStep();
  redraw();
}
function bring(step) {
  const size = Math.min(view.to - view.from, Math.max(40, stepsNow() / 8));
  look(step + 0.5 - size / 2, step + 0.5 + size / 2);
  point(step);
}
function showStretch(from, to) {
  const more = Math.max(2, (to - from) / 10);
  view.stretch = [from, to + 1];
  look(from - more, to + 1 + more);
  point(from);
}
function jump(direction) {
  const steps = issueSteps(timelineNow());
  if (!steps.length) return;
  const here = view.cursor < 0 ? (direction > 0 ? view.from - 1 : view.to) : view.cursor;
  const next = direction > 0 ? steps.find((step) => step > here) : steps.findLast((step) => step < here);
  bring(next === undefined ? steps[direction > 0 ? 0 : steps.length - 1] : next);
}

function sayState() {
  const { times, tracks, leftOut } = timelineNow();
  const from = Math.floor(view.from), to = Math.min(times.length, Math.ceil(view.to)) - 1;
  const inside = issueSteps(timelineNow()).filter((step) => step >= from && step <= to).length;
  clearTimeout(saying);
  const more = leftOut ? ` ${leftOut} more annotators are in the other files of this folder.` : '';
  const text = `Shown: ${isolated(times[from], 28)} to ${isolated(times[to], 28)}${data.timeUnit}, ` +
    `${counted(to - from + 1)} of ${counted(times.length)} steps, ${counted(inside)} with a label to check.${tracks.length ? more : ''}`;
  saying = setTimeout(() => { byId('timeline-state').textContent = text; }, 200); // once at rest: it is read aloud
}
function sayStep() {
  const { times, tracks, suggested } = timelineNow();
  const step = view.cursor;
  const parts = tracks.filter((track) => track.recorded[step] >= 0).map((track) => {
    const who = track.annotator < 0 ? '' : ` by ${isolated(words.annotator[track.annotator], 24)}:`;
    const right = track.right[step] < 0 ? '' : ` (chance right ${chance(track.right[step] / 1000)})`;
    return `recorded${who} ${isolated(words.class[track.recorded[step]], 28)}${right}${track.issues.includes(step) ? ', to check' : ''}`;
  });
  const better = suggested[step] < 0 ? '' : `; suggested ${isolated(words.class[suggested[step]], 28)}`;
  byId('timeline-readout').textContent = `${isolated(times[step], 40)}${data.timeUnit}: ${parts.join('; ') || 'nothing recorded'}${better}`;
}

function choose(at) {
  current = at;
  byId('timeline-choice').value = String(at);
  view.cursor = -1;
  view.stretch = null;
  byId('timeline-readout').textContent = '';
  const used = [...new Set(timelineNow().tracks.flatMap((track) => track.recorded).concat(timelineNow().suggested))];
  const items = used.filter((number) => number >= 0).sort((a, b) => a - b).slice(0, 24).map((number) => classElement(number));
  byId('timeline-legend').replaceChildren(...items, element('span', {}, element('i', { class: 'flag' }), 'label to check'),
    used.length > 11 ? 'colours repeat after ten classes' : '');
  look(0, stepsNow());
}

const actions = {
  in: () => zoom(0.5), out: () => zoom(2), all: () => look(0, stepsNow()),
  left: () => scroll(-0.4), right: () => scroll(0.4), next: () => jump(1), previous: () => jump(-1),
};
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const here = view.cursor < 0 ? Math.floor(view.from) : view.cursor;
  const keys = {
    ArrowLeft: event.shiftKey ? () => follow(here - 1) : () => scroll(-0.15), ArrowRight: event.shiftKey ? () => follow(here + 1) : () => scroll(0.15),
    '+': actions.in, '=': actions.in, '-': actions.out, '0': actions.all, n: actions.next, p: actions.previous,
    Home: () => look(0, view.to - view.from), End: () => look(stepsNow() - (view.to - view.from), stepsNow()),
  };
  const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (act) {
    event.preventDefault();
    act();
  }
}
function follow(step) {
  point(step);
  if (view.cursor < view.from || view.cursor >= view.to) look(view.cursor - (view.to - view.from) / 2, view.cursor + (view.to - view.from) / 2);
}

// Where a pointer is: its share of the width, and whether it is in the strip at the bottom.
function locate(event) {
  const area = box.getBoundingClientRect();
  const share = Math.min(1, Math.max(0, (event.clientX - area.left - 8) / (area.width - 16)));
  return { share, inOverview: event.clientY > area.bottom - OVERVIEW - 16 };
}
const fingers = new Map();
let start = null;
function onDown(event) {
  fingers.set(event.pointerId, event.clientX);
  const { share, inOverview } = locate(event);
  start = { share, inOverview, from: view.from, to: view.to, spread: spread() };
  if (inOverview) centreOn(share);
  box.setPointerCapture(event.pointerId);
  box.classList.add('dragging');
}
function onMove(event) {
  const { share } = locate(event);
  if (!fingers.has(event.pointerId)) {
    if (event.pointerType === 'mouse') point(Math.floor(view.from + share * (view.to - view.from)));
    return;
  }
  fingers.set(event.pointerId, event.clientX);
  const size = start.to - start.from;
  if (fingers.size > 1 && start.spread > 10) {
    const wanted = size * start.spread / Math.max(10, spread()), middle = (start.from + start.to) / 2;
    look(middle - wanted / 2, middle + wanted / 2);
  } else if (start.inOverview) centreOn(share);
  else look(start.from + (start.share - share) * size, start.to + (start.share - share) * size);
}
function onUp(event) {
  const { share, inOverview } = locate(event);
  if (start && fingers.size === 1 && !inOverview && Math.abs(share - start.share) < 0.005) point(Math.floor(view.from + share * (view.to - view.from)));
  fingers.delete(event.pointerId);
  if (!fingers.size) box.classList.remove('dragging');
}
function spread() {
  const points = [...fingers.values()];
  return points.length > 1 ? Math.abs(points[0] - points[1]) : 0;
}
function centreOn(share) {
  const size = view.to - view.from, middle = share * stepsNow();
  look(middle - size / 2, middle + size / 2);
}
// The wheel belongs to the page until the drawing was clicked: a reader scrolling by must not be caught.
function onWheel(event) {
  const isAcross = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
  if (!isAcross && !event.ctrlKey && document.activeElement !== box) return;
  event.preventDefault();
  if (isAcross) scroll((event.deltaX || event.deltaY) / 800);
  else zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), locate(event).share);
}

if (box && timelines.length) {
  timelines.forEach((each, at) => {
    const many = issueSteps(each).length;
    byId('timeline-choice').append(element('option', { value: at }, `${shorten(words.sequence[each.sequence], 50)}${each.planned ? `, stretch ${each.planned} of the plan` : ''} (${counted(many)} to check)`));
  });
  byId('timeline-choice').addEventListener('change', (event) => choose(Number(event.target.value)));
  document.querySelectorAll('[data-do]').forEach((button) => button.addEventListener('click', () => actions[button.dataset.do]()));
  box.addEventListener('keydown', onKey);
  box.addEventListener('pointerdown', onDown);
  box.addEventListener('pointermove', onMove);
  box.addEventListener('pointerup', onUp);
  box.addEventListener('pointercancel', onUp);
  box.addEventListener('dblclick', (event) => zoom(0.5, locate(event).share));
  box.addEventListener('wheel', onWheel, { passive: false });
  window.addEventListener('show-step', ({ detail }) => {
    choose(detail.at);
    if (detail.to === undefined) bring(detail.step);
    else showStretch(detail.step, detail.to);
    const isCalm = window.matchMedia('(prefers-reduced-motion: reduce)').matches;
    byId('timelines').scrollIntoView({ behavior: isCalm ? 'auto' : 'smooth' });
    box.focus({ preventScroll: true });
  });
  document.querySelectorAll('[data-stretch]').forEach((button) => button.addEventListener('click', () => {
    const { at, from, to } = data.plan[Number(button.dataset.stretch)];
    window.dispatchEvent(new CustomEvent('show-step', { detail: { at, step: from, to } }));
  }));
  new ResizeObserver(redraw).observe(box);
  window.addEventListener('beforeprint', () => paint(700)); // about the width of A4, so that its text is as large as the rest
  window.addEventListener('afterprint', redraw);
  choose(0);
}
