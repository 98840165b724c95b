// The table of nodes and pools. Only the visible rows exist as elements.

const rowHeight = 29;
const matrix = { rows: [], shown: [], columns: [], sort: "name", down: false, filter: "", first: -1, last: -1 };

function startNodes() {
  const box = $("#nodes .table");
  if (!box) return;
  const pools = held.report.pools.map((p) => p.name);
  const outside = held.report.blocks.some((b) => b.pool === "");
  if (outside) pools.push("");
  const rows = new Map();
  for (const n of held.report.nodes) {
    const signs = held.page.signs?.[n.name] ?? ["", "", ""];
    rows.set(n.name, { name: n.name, own: signs[0], signs, missing: n.missing, blocks: n.blocks.length, empty: n.emptyBlocks, inUse: n.addresses, borrowed: n.borrowed, lent: n.lent, findings: 0, worst: 0, pools: pools.map(() => ({ blocks: 0, empty: 0, inUse: 0 })) });
  }
  const poolAt = new Map(pools.map((p, i) => [p, i]));
  for (const b of held.report.blocks) {
    const cell = rows.get(ownerNode(b.owner))?.pools[poolAt.get(b.pool)];
    if (!cell) continue;
    cell.blocks++;
    cell.inUse += b.inUse;
    if (b.inUse === 0) cell.empty++;
  }
  for (const f of held.report.findings) {
    const row = rows.get(f.subject.node);
    if (!row) continue;
    row.findings++;
    row.worst = Math.max(row.worst, held.page.severities.indexOf(f.severity));
  }
  matrix.rows = [...rows.values()];
  const signed = (sign, text) => (sign === "-" ? "–" : sign + text);
  const number = (sign, of) => ({ of, show: (r) => signed(r.signs[sign], of(r)) });
  matrix.columns = [
    { id: "name", text: "Node", of: (r) => r.name },
    { id: "borrowed", text: "Borrows", ...number(1, (r) => r.borrowed), class: (r) => (r.borrowed ? "bad" : "") },
    { id: "findings", text: "Findings", of: (r) => r.findings, class: (r) => (r.worst > 2 ? "bad" : "") },
    { id: "blocks", text: "Blocks", ...number(0, (r) => r.blocks), class: (r) => (filters["no:block"](r) ? "bad" : "") },
    { id: "empty", text: "Empty", ...number(0, (r) => r.empty) },
    { id: "inUse", text: "In use", ...number(0, (r) => r.inUse) },
    { id: "lent", text: "Borrowed by others", ...number(2, (r) => r.lent) },
    ...pools.map((p, i) => ({
      id: "pool " + i, text: p === "" ? "outside pools" : clean(p), of: (r) => r.pools[i].blocks,
      show: (r) => { const c = r.pools[i]; return c.blocks === 0 ? "–" : `${r.own === "" ? "" : "≥"}${c.blocks} · ${c.inUse} in use${c.empty ? ` · ${c.empty} empty` : ""}`; },
    })),
  ];
  if (!matrix.columns.some((c) => c.id === matrix.sort)) matrix.sort = "name";
  buildMatrix(box);
  filterNodes();
}

function buildMatrix(box) {
  const focused = document.activeElement?.dataset?.column;
  const head = el("tr", {}, matrix.columns.map((c) => el("th", { scope: "col" }, el("button", { type: "button", "data-column": c.id, click: () => sortBy(c.id) }, c.text))));
  matrix.body = el("tbody");
  box.replaceChildren(el("table", { class: "grid" }, el("thead", {}, head), matrix.body));
  matrix.box = box;
  box.onscroll = () => drawNodes(false);
  if (focused) $$("button", head).find((b) => b.dataset.column === focused)?.focus({ preventScroll: true });
}

function sortBy(id) {
  if (matrix.sort === id) matrix.down = !matrix.down;
  else { matrix.sort = id; matrix.down = id !== "name"; }
  filterNodes();
  const c = matrix.columns.find((x) => x.id === id);
  say(`Sorted by ${c.text}, ${matrix.down ? "descending" : "ascending"}.`);
}

// Filter words other than parts of a name.
const filters = {
  "has:findings": (r) => r.findings > 0, "no:block": (r) => r.own === "" && r.blocks === 0, "has:empty": (r) => r.empty > 0,
  "is:borrowing": (r) => r.borrowed > 0, "is:lending": (r) => r.lent > 0, "is:missing": (r) => Boolean(r.missing),
};

function filterNodes() {
  const words = matrix.filter.toLowerCase().split(/\s+/).filter(Boolean);
  matrix.shown = matrix.rows.filter((r) => words.every((w) => (filters[w] ? filters[w](r) : r.name.toLowerCase().includes(w))));
  const column = matrix.columns.find((c) => c.id === matrix.sort), by = matrix.down ? -1 : 1;
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  matrix.shown.sort((a, b) => by * compare(column.of(a), column.of(b)) || compare(a.name, b.name));
  $$("th", matrix.box.firstChild.tHead).forEach((th, i) => {
    matrix.columns[i].id === matrix.sort ? th.setAttribute("aria-sort", matrix.down ? "descending" : "ascending") : th.removeAttribute("aria-sort");
  });
  $("#nodes-shown").textContent = words.length ? `${matrix.shown.length} of ${plural(matrix.rows.length, "node")}` : "";
  drawNodes();
}

function drawNodes(force = true) {
  const box = matrix.box;
  if (!box) return;
  const n = matrix.shown.length, all = matrix.printing;
  const first = all ? 0 : Math.max(Math.floor(box.scrollTop / rowHeight) - 10, 0);
  const last = all ? Math.min(n, 2000) : Math.min(first + Math.ceil(box.clientHeight / rowHeight) + 20, n);
  if (!force && first === matrix.first && last === matrix.last) return;
  [matrix.first, matrix.last] = [first, last];
  const kept = document.activeElement?.dataset?.node;
  const space = (rows) => { const td = el("td", { colspan: matrix.columns.length }); td.style.height = rows * rowHeight + "px"; return el("tr", { class: "spacer", "aria-hidden": "true" }, td); };
  const rows = matrix.shown.slice(first, last).map((r, i) => nodeRow(r, first + i));
  matrix.body.replaceChildren(...(first > 0 ? [space(first)] : []), ...rows, ...(last < n && !all ? [space(n - last)] : []));
  if (n === 0) matrix.body.append(el("tr", {}, el("td", { colspan: matrix.columns.length }, "No node matches the filter.")));
  box.firstChild.setAttribute("aria-rowcount", n + 1);
  if (kept) $$("button[data-node]", matrix.body).find((b) => b.dataset.node === kept)?.focus({ preventScroll: true });
}

function nodeRow(r, index) {
  const owner = "host:" + r.name;
  const row = el("tr", { "aria-rowindex": index + 2, class: pinned === owner ? "pinned" : null, pointerenter: () => light(owner), pointerleave: () => light(null) },
    el("th", { scope: "row" }, el("button", { type: "button", "data-node": r.name, "aria-pressed": String(pinned === owner), title: "Highlight its blocks on the maps", click: () => pin(owner), focus: () => light(owner), blur: () => light(null) }, name(r.name)), r.missing ? " (no longer exists)" : ""));
  for (const c of matrix.columns.slice(1)) {
    const value = c.of(r);
    row.append(el("td", { class: (c.class?.(r) || (value === 0 ? "zero" : "")) || null }, c.show ? c.show(r) : String(value)));
  }
  return row;
}
