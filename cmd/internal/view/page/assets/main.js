// The start of the page.

function setMode(mode) {
  const map = $("#map"), input = $(`#map input[name=mode][value="${mode}"]`);
  if (!input) return;
  input.checked = true;
  map.dataset.mode = mode;
}

// begin starts the parts that depend on the state.
function begin() {
  startMaps();
  startNodes();
  showAges();
  for (const b of $$("[data-save]")) b.hidden = false;
}

// warmUp decodes the addresses while the browser is idle.
function warmUp() {
  held.ready = null;
  const idle = window.requestIdleCallback ?? ((f) => setTimeout(f, 200));
  idle(async () => { const from = held.source; const u = await usage(); if (from === held.source) { held.ready = u; relight(); performance.mark("addresses"); } });
}

async function save(what) {
  const text = await unpack((held.source.getElementById("data-" + what)).textContent);
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "application/json" })), download: what + ".json" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

document.addEventListener("change", (e) => {
  if (e.target.name === "mode") setMode(e.target.value);
  else if (e.target.name?.startsWith("change-")) $(".change-pair", e.target.closest("figure")).dataset.showChange = e.target.value;
});

document.addEventListener("click", (e) => {
  const b = e.target.closest("button");
  if (!b) return;
  if (b.dataset.show) showSubject(b.dataset.show, b);
  else if (b.dataset.more) moreFindings(b, 100)?.setAttribute("tabindex", "-1");
  else if (b.dataset.save) save(b.dataset.save);
});

document.addEventListener("keydown", (e) => {
  if (e.key === "Escape") {
    if (!$("#card").hidden) closeCard();
    else if (pinned !== null) pin(pinned);
  } else if (e.key === "/" && !e.ctrlKey && !e.metaKey && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
    e.preventDefault();
    $("#find").focus();
  }
});

$("#nodes-filter")?.addEventListener("input", (e) => { matrix.filter = e.target.value; matrix.box.scrollTop = 0; filterNodes(); });

// For printing, open everything except the documentation of the checks, and list all nodes.
let folded = [];
addEventListener("beforeprint", () => {
  folded = $$("details:not([open]):not(.docs)");
  for (const d of folded) d.open = true;
  matrix.printing = true;
  drawNodes();
});
addEventListener("afterprint", () => {
  for (const d of folded) d.open = false;
  matrix.printing = false;
  drawNodes();
});

decode(document).then((data) => {
  hold(document, data);
  begin();
  startFind();
  startLive();
  warmUp();
  document.documentElement.dataset.ready = "";
  performance.mark("ready");
});
