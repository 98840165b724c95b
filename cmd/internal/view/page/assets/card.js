// The card of a block, with all its addresses.

let cardFrom = null; // the element that had the focus before
let cardShows = null; // shows the card again after a change of state

function fact(label, ...value) {
  return el("div", {}, el("dt", {}, label), el("dd", {}, ...value));
}

function showCard(title, from, ...children) {
  const card = $("#card");
  if (card.hidden) cardFrom = from ?? document.activeElement;
  const heading = el("h2", { id: "card-title", tabindex: "-1" }, title);
  card.replaceChildren(el("button", { type: "button", class: "close", click: closeCard }, "Close"), heading, ...children.filter(Boolean));
  card.hidden = false;
  return heading;
}

function closeCard() {
  const card = $("#card");
  if (card.hidden) return;
  card.hidden = true;
  card.replaceChildren();
  cardShows = null;
  if (cardFrom?.isConnected) cardFrom.focus({ preventScroll: true });
  cardFrom = null;
}

// aboutFindings lists findings with links to them.
function aboutFindings(indexes) {
  if (indexes.length === 0) return null;
  return [el("h3", {}, "Findings"), el("ul", { class: "about" }, indexes.slice(0, 50).map((i) => {
    const f = held.report.findings[i];
    return el("li", {}, el("a", { href: "#finding-" + f.fingerprint, click: (e) => { e.preventDefault(); openFinding(i); } },
      f.severity.toUpperCase() + " " + f.check), " ", clean(f.message));
  }), indexes.length > 50 ? el("li", {}, `… and ${indexes.length - 50} more`) : null)];
}

// openSlot shows the card of a place without a block.
function openSlot(view, place, from) {
  const i = view.at[place], words = view.describe(place);
  cardShows = () => openSlot(view, place);
  const heading = showCard(words[0], from ?? view.plot,
    el("p", {}, i < 0 ? "Free: no block exists here, and any node that the pool selects may claim it." : words.slice(1).join(" · ")),
    ...(i < 0 ? [] : aboutFindings(view.data.findings[i]) ?? []));
  heading.focus({ preventScroll: true });
}

function openBlock(block, address, from, keepFocus = false) {
  const b = held.report.blocks[block], cidr = parseCIDR(b.cidr);
  cardShows = () => {
    const again = held.blockByCIDR.get(b.cidr);
    again === undefined ? closeCard() : openBlock(again, address, null, true);
  };
  let findings = [], others = [];
  for (const v of held.views) {
    const i = v.cellOf.get(block);
    if (i === undefined) continue;
    findings = v.data.findings[i];
    others = v.data.blocks[i].filter((o) => o !== block);
  }
  const owner = ownerNode(b.owner);
  const facts = el("dl", { class: "facts" },
    fact("Owner", owner ? el("button", { type: "button", "aria-pressed": String(pinned === b.owner), click: (e) => { pin(b.owner); e.target.setAttribute("aria-pressed", String(pinned === b.owner)); } }, name(owner)) : name(ownerName(b.owner))),
    fact("Pool", b.pool ? name(b.pool) : "none"),
    fact("Addresses", `${b.inUse} of ${cidr.size} in use${b.cooling ? `, ${b.cooling} of them cooling down` : ""}, ${b.available} available`),
    b.lent ? fact("Borrowed", `${b.lent} by `, b.lentTo.flatMap((n, i) => [i ? ", " : "", name(n)])) : null,
    b.conditions ? fact("Condition", el("strong", { class: "warn" }, b.conditions.map((c) => conditions[c] ?? c).join(", "))) : null,
    b.releasable ? fact("Release", "empty and releasable now") : null);
  const place = el("div", { class: "uses" }, el("p", { class: "note" }, "Reading the addresses …"));
  const heading = showCard(b.cidr, from, facts,
    others.length ? el("p", {}, "Also here: ", others.map((o) => el("button", { type: "button", click: () => openBlock(o, null, null) }, held.report.blocks[o].cidr))) : null,
    ...(aboutFindings(findings) ?? []), el("h3", {}, "Addresses"), place);
  if (!keepFocus) heading.focus({ preventScroll: true });
  usage().then((u) => {
    if (!place.isConnected) return;
    if (!u || u.blocks.length !== held.report.blocks.length) {
      place.replaceChildren(el("p", { class: "note" }, "This page does not contain the use of single addresses."));
      return;
    }
    place.replaceChildren(...addressList(u, block, b, cidr, address));
    $("tr.here", place)?.scrollIntoView({ block: "center" });
  });
}

// addressList shows the addresses of a block as squares and as a table, with free addresses
// joined to ranges.
function addressList(u, block, b, cidr, address) {
  const total = Number(cidr.size), rows = [], classes = new Array(Math.min(total, 65536)).fill("free");
  const at = (ordinal) => formatAddr(cidr.n + BigInt(ordinal), cidr.bits);
  const wanted = address && parseAddr(address), here = wanted ? Number(wanted.n - cidr.n) : -1;
  const free = (from, to) => { // to is exclusive
    if (from >= to) return;
    const text = to - from === 1 ? at(from) : at(from) + " to " + at(to - 1);
    rows.push(el("tr", { class: here >= from && here < to ? "freed here" : "freed" }, el("th", { scope: "row" }, text), el("td", { colspan: "2" }, plural(to - from, "free address", "free addresses"))));
  };
  let next = 0;
  for (const entry of u.blocks[block]) {
    const ordinal = entry.o, marks = entry.m ?? 0, kind = entry.k ?? 0;
    free(next, ordinal);
    next = ordinal + 1;
    const use = useOf(entry);
    if (ordinal < classes.length) {
      classes[ordinal] = marks & leaked ? "leaked" : marks & borrowed ? "borrowed" : marks & cooling ? "cooling" : kind === 1 ? "used" : "other";
    }
    const tags = [[leaked, "leaked", "leaked: its owner no longer exists"], [borrowed, "borrowed", "borrowed"], [cooling, "cooling", "cooling down"]]
      .filter(([bit]) => marks & bit).map(([, c, text]) => el("span", { class: "mark " + c }, text + " "));
    rows.push(el("tr", { class: ordinal === here ? "here" : null }, el("th", { scope: "row" }, at(ordinal)),
      el("td", {}, tags, use.text, use.handle ? el("div", { class: "handle", title: clean(use.handle) }, clean(use.handle)) : null),
      el("td", {}, use.node ? name(use.node) : "")));
  }
  free(next, total);
  const table = el("table", { class: cidr.bits === 128 ? "addresses v6" : "addresses" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Address"), el("th", { scope: "col" }, "In use by, handle"), el("th", { scope: "col" }, "On node"))),
    el("tbody", {}, rows.slice(0, 1024)));
  const out = [squares(classes, here, b.cidr), table];
  if (rows.length > 1024) {
    out.push(el("button", { type: "button", click: (e) => { $("tbody", table).append(...rows.slice(1024)); e.target.remove(); } }, `Show ${rows.length - 1024} more`));
  }
  return out;
}

function useOf({ k: kind = 0, s: namespace, n, w: node, h: handle }) {
  let text = [kinds[kind] || "unknown use"];
  if (kind === 1) text = [name(namespace ? namespace + "/" + n : n)];
  else if (n) text = [kinds[kind] + " ", name(n)];
  return { text, node, handle };
}

// squares draws each address as a square, 16 or 32 to a row.
function squares(classes, here, cidr) {
  const columns = classes.length <= 64 ? 16 : 32, n = 12, paths = new Map();
  const at = (i) => `M${(i % columns) * n} ${Math.floor(i / columns) * n}h${n}v${n}h${-n}z`;
  classes.forEach((c, i) => paths.set(c, (paths.get(c) ?? "") + at(i)));
  if (here >= 0) paths.set("here", at(here));
  const rows = Math.ceil(classes.length / columns);
  return svg("svg", { class: "squares", viewBox: `-1 -1 ${columns * n + 2} ${rows * n + 2}`, role: "img", "aria-label": `The addresses of ${cidr}; the table below names them` },
    ...[...paths].map(([c, d]) => svg("path", { class: c, d })));
}
