// The data of the page, and helpers for all scripts.

const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

// el creates an element. Children that are not elements become text: names come from the
// cluster, and must never be parsed as markup.
function el(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") e.addEventListener(name, value);
    else if (value !== false && value !== null && value !== undefined) e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

function svg(tag, attributes = {}, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

// clean escapes characters that hide or reorder others.
const unprintable = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;
function clean(text) {
  return String(text).replace(unprintable, (c) => {
    const n = c.codePointAt(0);
    if (n < 0x80) return "\\x" + n.toString(16).padStart(2, "0");
    return n > 0xffff ? "\\U" + n.toString(16).padStart(8, "0") : "\\u" + n.toString(16).padStart(4, "0");
  });
}

const name = (text) => el("bdi", {}, clean(text));

function plural(n, one, many = one + "s") {
  return n === 1 ? "1 " + one : n.toLocaleString("en").replaceAll(",", " ") + " " + many;
}

// unpack decodes data from Go's pack: compressed JSON in base64.
async function unpack(text) {
  text = text.trim();
  let bytes;
  if (Uint8Array.fromBase64) {
    bytes = Uint8Array.fromBase64(text);
  } else {
    const raw = atob(text);
    bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  }
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

// Numbers beyond 2^53 lose digits here, so Go renders all texts that show them.
async function readData(id, from = document) {
  const e = from.getElementById(id);
  return e ? JSON.parse(await unpack(e.textContent)) : null;
}

// held is the data of the page.
const held = {
  report: null,
  page: null,
  usage: null, // a promise; null until it is first needed
  blockByCIDR: new Map(),
  views: [], // of the maps
};

// The kinds and marks of an address use, as in Go.
const kinds = ["", "pod", "tunnel", "service", "reserved by Windows", "virtual machine"];
const borrowed = 1, leaked = 2, cooling = 4;

// indexUsage indexes the borrowed addresses by node.
function indexUsage(u) {
  if (!u) return null;
  const borrowedBy = new Map();
  u.forEach((entries, block) => {
    for (const { o: ordinal, m: marks, w: node } of entries) {
      if (!(marks & borrowed)) continue;
      if (!borrowedBy.has(node)) borrowedBy.set(node, []);
      borrowedBy.get(node).push({ block, ordinal });
    }
  });
  return { blocks: u, borrowedBy };
}

function ownerNode(owner) {
  return owner.startsWith("host:") ? owner.slice(5) : "";
}

function ownerName(owner) {
  if (owner === "") return "no node";
  if (owner.startsWith("virtual:")) return "LoadBalancer services";
  return ownerNode(owner) || owner;
}

// Addresses as numbers.

function parseAddr(text) {
  if (/^\d+\.\d+\.\d+\.\d+$/.test(text)) {
    const parts = text.split(".").map(Number);
    if (parts.some((p) => p > 255)) return null;
    return { n: parts.reduce((a, p) => a * 256n + BigInt(p), 0n), bits: 32 };
  }
  if (!/^[0-9a-f:]+$/i.test(text) || !text.includes(":")) return null;
  const halves = text.split("::");
  if (halves.length > 2) return null;
  const [head, tail] = halves.map((h) => (h === "" ? [] : h.split(":")));
  const groups = halves.length === 1 ? head : [...head, ...Array(Math.max(8 - head.length - tail.length, 0)).fill("0"), ...tail];
  if (groups.length !== 8 || groups.some((g) => !/^[0-9a-f]{1,4}$/i.test(g))) return null;
  return { n: groups.reduce((a, g) => a * 65536n + BigInt(parseInt(g, 16)), 0n), bits: 128 };
}

function formatAddr(n, bits) {
  if (bits === 32) return [24n, 16n, 8n, 0n].map((s) => (n >> s) & 255n).join(".");
  const groups = [];
  for (let s = 112n; s >= 0n; s -= 16n) groups.push(Number((n >> s) & 65535n));
  let best = -1, length = 1;
  for (let i = 0; i < 8; i++) {
    let j = i;
    while (j < 8 && groups[j] === 0) j++;
    if (j - i > length) { best = i; length = j - i; }
  }
  const hex = groups.map((g) => g.toString(16));
  if (best < 0) return hex.join(":");
  return hex.slice(0, best).join(":") + "::" + hex.slice(best + length).join(":");
}

function parseCIDR(text) {
  const [addr, length] = text.split("/");
  const a = parseAddr(addr), bits = Number(length);
  return a && bits >= 0 && bits <= a.bits && Number.isInteger(bits) ? { n: a.n, bits: a.bits, length: bits, size: 1n << BigInt(a.bits - bits) } : null;
}

// blockOf returns the most specific block that contains an address.
function blockOf(addr) {
  let best = -1, size = 0n;
  for (let i = 0; i < held.cidrs.length; i++) {
    const c = held.cidrs[i];
    if (c && c.bits === addr.bits && addr.n >= c.n && addr.n < c.n + c.size && (best < 0 || c.size < size)) {
      best = i;
      size = c.size;
    }
  }
  return best;
}

// decode reads the data of a document for hold.
function decode(from) {
  return Promise.all([readData("data-report", from), readData("data-page", from)]);
}

// hold replaces the data.
function hold(from, data) {
  [held.report, held.page] = data;
  held.usage = null;
  held.source = from;
  held.blockByCIDR = new Map();
  held.cidrs = held.report.blocks.map((b, i) => {
    held.blockByCIDR.set(b.cidr, i);
    return parseCIDR(b.cidr);
  });
}

// usage decodes the use of single addresses on first use, because in a large cluster it is
// most of the page.
function usage() {
  if (!held.usage) held.usage = readData("data-uses", held.source).then(indexUsage);
  return held.usage;
}

function say(text) {
  $("#said").textContent = text;
}
