// The search box for addresses, blocks, nodes and pods.

const finder = { results: [], at: -1, asked: 0 };

async function findAll(text) {
  const out = [], limit = 20, want = text.toLowerCase(), r = held.report;
  const addr = parseAddr(text);
  if (addr) {
    const b = blockOf(addr);
    if (b >= 0) out.push({ text: formatAddr(addr.n, addr.bits), about: "in block " + r.blocks[b].cidr, go: () => openBlock(b, text, $("#find")) });
    else out.push({ text, about: (r.gaps ?? []).some((g) => g.resource === "ipamblocks") ? "no readable block contains it" : "no block contains it", go: () => {} });
  }
  for (let i = 0; i < r.blocks.length && out.length < limit; i++) {
    if (r.blocks[i].cidr.startsWith(want)) out.push({ text: r.blocks[i].cidr, about: "block of " + clean(ownerName(r.blocks[i].owner)), go: () => openBlock(i, null, $("#find")) });
  }
  for (const n of r.nodes) {
    if (out.length >= limit) break;
    if (n.name.toLowerCase().includes(want)) {
      out.push({ text: clean(n.name), about: held.page.signs?.[n.name] ? "node" : "node with " + plural(n.blocks.length, "block"), go: () => { if (pinned !== "host:" + n.name) pin("host:" + n.name); goTo($("#map")); } });
    }
  }
  const u = out.length < limit && want.length > 1 ? await usage() : null;
  if (u) {
    for (let b = 0; b < u.blocks.length && out.length < limit; b++) {
      for (const { o: ordinal, s: namespace = "", n: title = "", w: node } of u.blocks[b]) {
        if (out.length >= limit) break;
        const full = namespace + "/" + title;
        if (!full.toLowerCase().includes(want) || full === "/") continue;
        const c = held.cidrs[b], address = formatAddr(c.n + BigInt(ordinal), c.bits);
        out.push({ text: clean(title && namespace ? full : title), about: address + (node ? " on " + clean(node) : ""), go: () => openBlock(b, address, $("#find")) });
      }
    }
  }
  return out;
}

async function searchNow() {
  const text = $("#find").value.trim(), asked = ++finder.asked;
  const results = text === "" ? [] : await findAll(text);
  if (asked !== finder.asked) return; // the text has changed in the meantime
  finder.results = results;
  finder.at = -1;
  const list = $("#found");
  list.replaceChildren(...(results.length || text === "" ? results.map((r, i) => el("li", { role: "option", id: "found-" + i, "aria-selected": "false", mousedown: (e) => { e.preventDefault(); choose(i); } }, el("bdi", {}, r.text), " ", el("span", {}, r.about)))
    : [el("li", { role: "option", "aria-selected": "false", "aria-disabled": "true" }, "Nothing found.")]));
  showFound(text !== "");
}

function showFound(open) {
  $("#found").hidden = !open;
  $("#find").setAttribute("aria-expanded", String(open));
  if (!open) $("#find").removeAttribute("aria-activedescendant");
}

function choose(i) {
  const r = finder.results[i];
  if (!r) return;
  showFound(false);
  r.go();
}

function moveFound(by) {
  const n = finder.results.length;
  if (n === 0) return;
  finder.at = (finder.at + by + n + (finder.at < 0 && by < 0 ? 1 : 0)) % n;
  $$("#found li").forEach((li, i) => {
    li.setAttribute("aria-selected", String(i === finder.at));
    if (i === finder.at) li.scrollIntoView({ block: "nearest" });
  });
  $("#find").setAttribute("aria-activedescendant", "found-" + finder.at);
}

function startFind() {
  const form = $(".find"), input = $("#find");
  form.hidden = false;
  let timer;
  input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(searchNow, 80); });
  input.addEventListener("focus", () => { if (input.value.trim() && finder.results.length) showFound(true); });
  input.addEventListener("blur", () => showFound(false));
  input.addEventListener("keydown", (e) => {
    if (e.key === "ArrowDown") { e.preventDefault(); moveFound(1); }
    else if (e.key === "ArrowUp") { e.preventDefault(); moveFound(-1); }
    else if (e.key === "Escape") { showFound(false); e.stopPropagation(); }
  });
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    clearTimeout(timer);
    if (finder.at < 0) await searchNow();
    choose(Math.max(finder.at, 0));
  });
}
