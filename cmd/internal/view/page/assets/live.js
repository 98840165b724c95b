// Ages, and the reload of a live page.

// skew is the server's clock minus the local clock, in milliseconds.
let skew = 0;

function age(seconds) {
  if (seconds < 90) return plural(Math.max(Math.round(seconds), 0), "second");
  if (seconds < 5400) return plural(Math.round(seconds / 60), "minute");
  if (seconds < 172800) return plural(Math.round(seconds / 3600), "hour");
  return plural(Math.round(seconds / 86400), "day");
}

function showAges() {
  for (const e of $$("[data-age-of]")) {
    const seconds = (Date.now() + skew - Date.parse(e.dataset.ageOf)) / 1000;
    e.textContent = `(${age(seconds)} ago${live.failed ? "; the exporter does not answer" : ""})`;
    e.classList.toggle("old", live.on && (seconds > 300 || live.failed));
  }
}

const live = { on: false, failed: false, base: 15000, asked: 0, shown: 0 };

// The sections of the page that a reload replaces.
const liveSections = ["verdict", "pools", "map", "findings", "plan", "unseen"];

// place records the reader's position, by the element at the top of the window.
function place() {
  const top = (x) => x.getBoundingClientRect().top;
  const seen = $$("main > section, .group, .finding, figure.map").filter((x) => x.getBoundingClientRect().bottom > 60);
  const begun = seen.filter((x) => top(x) >= 60 && top(x) < innerHeight / 2); // elements that begin in view move with the content above them
  const e = (begun.length ? begun : seen).reduce((a, b) => (a === null || Math.abs(top(b) - 60) < Math.abs(top(a) - 60) ? b : a), null);
  const key = (x) => (x?.id ? "#" + CSS.escape(x.id) : x?.dataset?.map ? `figure[data-map="${x.dataset.map}"]` : null);
  const focus = document.activeElement;
  return {
    at: key(e), top: e?.getBoundingClientRect().top,
    open: $$("details").map((d) => [detailsKey(d), d.open]).filter(([k]) => k),
    shown: $$(".group").map((g) => [g.id, $$(".finding", g).length]),
    mode: $("#map").dataset.mode,
    cursors: held.views.map((v) => v.place),
    focus: focus?.id ? "#" + CSS.escape(focus.id) : focus?.closest?.("figure[data-map]") ? `figure[data-map="${focus.closest("figure[data-map]").dataset.map}"] .plot` : null,
  };
}

function detailsKey(d) {
  if (d.id) return "#" + d.id;
  const within = d.parentElement.closest("[id]");
  return within ? `#${within.id} ${d.className}` : null;
}

function restore(was) {
  const open = new Map(was.open);
  for (const [id, n] of was.shown) {
    const button = document.getElementById(id)?.querySelector("[data-more]");
    const have = document.getElementById(id) ? $$(".finding", document.getElementById(id)).length : 0;
    if (button && n > have) moreFindings(button, n - have);
  }
  for (const d of $$("details")) if (open.has(detailsKey(d))) d.open = open.get(detailsKey(d));
  setMode(was.mode);
  held.views.forEach((v, i) => { v.place = Math.min(was.cursors[i] ?? -1, v.data.places - 1); });
  if (was.focus && document.activeElement === document.body) $(was.focus)?.focus({ preventScroll: true });
  if (was.at && $(was.at)) scrollBy({ top: $(was.at).getBoundingClientRect().top - was.top, behavior: "instant" });
}

async function refresh() {
  const began = performance.now(), asked = ++live.asked;
  try {
    const answer = await fetch(location.href, { cache: "no-store", headers: { Accept: "text/html" } });
    if (!answer.ok) throw new Error(answer.status);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!fresh.getElementById("data-report")) throw new Error("no report");
    const data = await decode(fresh);
    if (asked < live.shown) return 0; // a later answer is shown already
    live.shown = asked;
    skew = Date.parse(fresh.documentElement.dataset.now) - Date.now();
    takeOver(fresh, data);
    live.failed = false;
  } catch {
    if (asked < live.shown) return 0;
    live.failed = true;
  }
  showAges();
  return performance.now() - began;
}

// takeOver must not wait: what the reader does between place and restore would be lost.
function takeOver(fresh, data) {
  const was = place();
  hold(fresh, data);
  document.title = fresh.title;
  for (const id of liveSections) {
    const old = document.getElementById(id), now = fresh.getElementById(id);
    if (old && now) old.replaceWith(document.adoptNode(now));
  }
  const count = fresh.querySelector("#nodes .count");
  if (count && $("#nodes .count")) $("#nodes .count").textContent = count.textContent;
  begin();
  restore(was);
  warmUp();
  if (cardShows) cardShows();
}

function startLive() {
  const html = document.documentElement;
  if (!html.dataset.live) return;
  live.on = true;
  live.base = Number(html.dataset.live) * 1000;
  skew = Date.parse(html.dataset.now) - Date.now();
  const next = (took) => setTimeout(async () => next(document.hidden ? 0 : await refresh()), Math.max(live.base, took * 4));
  next(0);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
}
