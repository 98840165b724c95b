// The block maps: pointer, cursor and highlighting.

const flagDead = 1, flagNobody = 2, flagStray = 4, flagPlanned = 8, flagContested = 16, flagPinned = 32;

class MapView {
  constructor(figure, data) {
    this.figure = figure;
    this.data = data;
    this.plot = $(".plot", figure);
    this.status = $(".status", figure);
    this.at = new Int32Array(data.places).fill(-1);
    data.place.forEach((p, i) => { this.at[p] = i; });
    this.byOwner = new Map(); // owner -> cells
    this.lentTo = new Map(); // node -> cells
    this.cellOf = new Map(); // block -> cell
    const put = (map, key, cell) => { map.has(key) ? map.get(key).push(cell) : map.set(key, [cell]); };
    for (let i = 0; i < data.place.length; i++) {
      for (const b of data.blocks[i]) {
        const block = held.report.blocks[b];
        if (!this.cellOf.has(b)) this.cellOf.set(b, i);
        put(this.byOwner, block.owner, i);
        for (const node of block.lentTo ?? []) put(this.lentTo, node, i);
      }
    }
    this.place = -1; // of the cursor
    if (!this.plot) return;
    [this.lit, this.owes, this.dots, this.cursor] = ["lit", "owes", "dots", "cursor"].map((c) => $("." + c, this.plot));
    this.base = $(".base", this.plot);
    this.plot.tabIndex = 0;
    this.plot.setAttribute("role", "application");
    this.plot.setAttribute("aria-label", `Block map of ${clean(data.name)}, ${plural(data.place.length, "place")}. Arrow keys move, Enter selects.`);
    this.plot.addEventListener("pointermove", (e) => this.point(this.placeAt(e)));
    this.plot.addEventListener("pointerleave", () => this.point(-1));
    this.plot.addEventListener("click", (e) => { this.point(this.placeAt(e)); this.select(); });
    this.plot.addEventListener("keydown", (e) => this.key(e));
    this.plot.addEventListener("focus", () => { if (this.plot.matches(":focus-visible")) this.point(this.place < 0 ? (this.data.place[0] ?? 0) : this.place, true); });
    this.plot.addEventListener("blur", () => this.point(-1));
  }

  placeAt(e) {
    const box = this.base.getBoundingClientRect();
    const d = this.data, scale = (d.columns * d.cell) / box.width;
    const column = Math.floor(((e.clientX - box.left) * scale) / d.cell), row = Math.floor(((e.clientY - box.top) * scale) / d.cell);
    const place = row * d.columns + column;
    return column < 0 || column >= d.columns || row < 0 || place >= d.places ? -1 : place;
  }

  path(cells, inset = 0) {
    const d = this.data, n = d.cell - d.gap - 2 * inset, off = Math.floor(d.gap / 2) + inset;
    let out = "";
    for (const i of cells) out += this.square(d.place[i], off, n);
    return out;
  }

  square(place, off, n) {
    const d = this.data;
    return `M${(place % d.columns) * d.cell + off} ${Math.floor(place / d.columns) * d.cell + off}h${n}v${n}h${-n}z`;
  }

  // point moves the cursor; -1 removes it. If spoken is true, the place is announced.
  point(place, spoken = false) {
    if (place === this.shown && !spoken) return;
    this.shown = place;
    const d = this.data;
    if (place < 0) {
      this.cursor.setAttribute("d", "");
      this.status.textContent = "";
      light(null);
      return;
    }
    this.place = place;
    this.cursor.setAttribute("d", this.square(place, Math.floor(d.gap / 2), d.cell - d.gap));
    const i = this.at[place], words = this.describe(place);
    this.status.replaceChildren(el("span", { class: "cidr" }, words[0]), " " + words.slice(1).join(" · "));
    if (spoken) say(words.join(", "));
    const owner = i >= 0 && d.blocks[i].length > 0 ? held.report.blocks[d.blocks[i][0]].owner : null;
    light(owner);
  }

  cidrAt(place) {
    const i = this.at[place];
    if (i >= 0) return this.data.cidrs[i];
    const pool = parseCIDR(this.data.cidr);
    return formatAddr(pool.n + (BigInt(place) << BigInt(pool.bits - this.data.blockSize)), pool.bits) + "/" + this.data.blockSize;
  }

  // describe describes a place in words.
  describe(place) {
    const d = this.data, i = this.at[place], words = [this.cidrAt(place)];
    if (i < 0) return [...words, "free"];
    if (d.left?.[i]) words.push(`${d.left[i]} free slots before it`);
    if (d.state[i] === "reserved") words.push("reserved by an IPReservation");
    if (d.state[i] === "broken" && d.blocks[i].length === 0) words.push("unreadable block");
    if (d.flags[i] & flagStray) words.push("BlockAffinity exists, its IPAMBlock does not");
    const after = d.inUse && d.blocks[i].length === 1 ? { inUse: d.inUse[i], available: d.available[i], releasable: false } : {};
    for (const b of d.blocks[i]) words.push(...describeBlock({ ...held.report.blocks[b], ...after }, d.blocks[i].length > 1));
    if (d.flags[i] & flagContested) words.push("contested");
    if (d.flags[i] & flagPinned) words.push("holds an address that cannot move");
    if (d.flags[i] & flagPlanned) words.push("changed by the plan");
    if (d.findings[i].length > 0) {
      const checks = [...new Set(d.findings[i].map((f) => held.report.findings[f].check))];
      words.push(held.page.severities[d.severity[i]].toUpperCase() + " " + checks.join(", "));
    }
    return words;
  }

  key(e) {
    const d = this.data;
    let place = this.place < 0 ? 0 : this.place;
    switch (e.key) {
      case "ArrowRight": place++; break;
      case "ArrowLeft": place--; break;
      case "ArrowDown": place += d.columns; break;
      case "ArrowUp": place -= d.columns; break;
      case "Home": place = 0; break;
      case "End": place = d.places - 1; break;
      case "PageDown": place = this.step(place, 1); break;
      case "PageUp": place = this.step(place, -1); break;
      case "Enter": case " ": e.preventDefault(); this.select(); return;
      default: return;
    }
    e.preventDefault();
    if (place >= 0 && place < d.places) {
      this.point(place, true);
      this.reveal();
    }
  }

  // step returns the next place that is not just free.
  step(place, by) {
    for (let p = place + by; p >= 0 && p < this.data.places; p += by) if (this.at[p] >= 0) return p;
    return place;
  }

  // reveal scrolls to the cursor if the map is larger than the window.
  reveal() {
    const box = this.base.getBoundingClientRect(), d = this.data, scale = box.width / (d.columns * d.cell);
    const y = box.top + (Math.floor(this.place / d.columns) + .5) * d.cell * scale;
    if (y < 80 || y > innerHeight - 60) scrollBy({ top: y - innerHeight / 2, behavior: "instant" });
  }

  select() {
    if (this.place < 0) return;
    const i = this.at[this.place];
    if (i >= 0 && this.data.blocks[i].length > 0) openBlock(this.data.blocks[i][0], null, this.plot);
    else openSlot(this, this.place);
  }
}

function describeBlock(b, withCIDR) {
  const size = parseCIDR(b.cidr).size, words = [];
  words.push((withCIDR ? b.cidr + " of " : "") + clean(ownerName(b.owner)));
  words.push(`${b.inUse} of ${size} in use`, `${b.available} available`);
  if (b.cooling) words.push(`${b.cooling} cooling down`);
  if (b.lent) words.push(`${b.lent} used by ${b.lentTo.map(clean).join(", ")}`);
  for (const c of b.conditions ?? []) words.push(conditions[c] ?? c);
  if (b.releasable) words.push("releasable");
  return words;
}

const conditions = {
  corrupt: "corrupt", overlap: "overlaps another block", deleted: "marked deleted", deadNode: "its node no longer exists", noOwner: "no owner",
};

// The highlighted owner: the one under the pointer, else the pinned one.
let pinned = null, litNow;

function light(owner) {
  owner ??= pinned;
  if (owner === litNow) return;
  litNow = owner;
  const node = owner ? ownerNode(owner) : "";
  for (const v of held.views) {
    if (!v.plot) continue;
    v.lit.setAttribute("d", owner === null ? "" : v.path(v.byOwner.get(owner) ?? []));
    v.owes.setAttribute("d", node ? v.path(v.lentTo.get(node) ?? [], 2) : "");
    v.dots.setAttribute("d", "");
  }
  if (node && held.ready) dot(owner, node, held.ready);
}

// relight repeats the highlighting after more data became available.
function relight() {
  const owner = litNow;
  litNow = undefined;
  light(owner ?? null);
}

// dot marks the single addresses that a node borrows, if they are large enough to be
// visible.
function dot(owner, node, u) {
  for (const { block, ordinal } of u.borrowedBy.get(node) ?? []) {
    for (const v of held.views) {
      const i = v.cellOf.get(block), d = v.data;
      if (i === undefined || !v.plot || d.cell < 12) continue;
      const size = Number(parseCIDR(held.report.blocks[block].cidr).size), side = Math.ceil(Math.sqrt(size));
      const n = (d.cell - d.gap) / side, off = d.gap / 2;
      const x = (d.place[i] % d.columns) * d.cell + off + (ordinal % side) * n;
      const y = Math.floor(d.place[i] / d.columns) * d.cell + off + Math.floor(ordinal / side) * n;
      v.dots.setAttribute("d", v.dots.getAttribute("d") + `M${x.toFixed(1)} ${y.toFixed(1)}h${n.toFixed(1)}v${n.toFixed(1)}h${(-n).toFixed(1)}z`);
    }
  }
}

function pin(owner) {
  pinned = owner === pinned ? null : owner;
  litNow = undefined;
  light(null);
  drawNodes();
  if (pinned !== null) say(`${clean(ownerName(pinned))} is highlighted on the maps.`);
}

// showSubject shows the subject of a finding: an address, a block or a node.
function showSubject(subject, from) {
  const [addr] = subject.split("/"), a = parseAddr(addr);
  if (!a) {
    if (pinned !== "host:" + subject) pin("host:" + subject);
    goTo($("#map"));
    return;
  }
  const block = subject.includes("/") ? held.blockByCIDR.get(subject) ?? -1 : blockOf(a);
  if (block >= 0) {
    openBlock(block, subject.includes("/") ? null : subject, from);
    return;
  }
  for (const v of held.views) {
    const i = v.data.cidrs.indexOf(subject);
    if (i >= 0) { openSlot(v, v.data.place[i], from); return; }
  }
  say("No block contains " + subject + ".");
}

function goTo(e) {
  e.scrollIntoView({ block: "start" });
}

function startMaps() {
  held.views = $$("figure.map[data-map]").map((f) => new MapView(f, held.page.maps[Number(f.dataset.map)]));
  held.views.push(...$$(".half[data-change]").map((f) => new MapView(f, held.page.changes[Number(f.dataset.change)])));
  litNow = undefined;
  light(null);
}
