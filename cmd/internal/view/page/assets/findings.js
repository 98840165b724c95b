// Findings that are rendered on demand.

// fillFinding renders a finding from the page's data.
function fillFinding(i) {
  const f = held.report.findings[i], e = $("#blank-finding").content.firstElementChild.cloneNode(true);
  e.id = "finding-" + f.fingerprint;
  $(".message", e).textContent = clean(held.page.messages[i]);
  const manual = f.fix.kind === "manual", next = $(".next", e);
  next.replaceWith(...(held.page.commands[i] ?? []).map((command, n) => {
    const line = next.cloneNode(true), prose = manual && n === 0;
    $("span", line).textContent = ["next", "run"][n] ?? "then";
    $("code", line).textContent = clean(command);
    $("code", line).classList.toggle("prose", prose);
    if (prose) $(".copy", line).remove();
    return line;
  }));
  const evidence = $(".evidence", e);
  if (f.evidence?.length) {
    $(".count", evidence).textContent = f.evidence.length;
    $("tbody", evidence).replaceChildren(...f.evidence.map((x) => el("tr", {}, el("th", { scope: "row" }, clean(x.name)), el("td", {}, name(x.value)))));
  } else evidence.remove();
  const show = $(".show", e), subject = held.page.subjects[i];
  if (subject) show.dataset.show = subject;
  else show.remove();
  return e;
}

// moreFindings renders count more findings of a group.
function moreFindings(button, count) {
  const [first, total, shown] = button.dataset.more.split(" ").map(Number), to = Math.min(shown + count, total);
  const list = $(".list", button.closest(".inside")), rows = [];
  for (let i = first + shown; i < first + to; i++) rows.push(fillFinding(i));
  list.append(...rows);
  button.dataset.more = `${first} ${total} ${to}`;
  if (to === total) button.parentElement.remove();
  else $("[data-rest]", button.parentElement).textContent = `${total - to} more findings of this check are in this page's data.`;
  return rows[0];
}

// openFinding scrolls to a finding, rendering it first if necessary.
function openFinding(i) {
  const id = "finding-" + held.report.findings[i].fingerprint;
  if (!document.getElementById(id)) {
    const button = $$("[data-more]").find((b) => { const [first, total] = b.dataset.more.split(" ").map(Number); return i >= first && i < first + total; });
    if (!button) return;
    const [first, , shown] = button.dataset.more.split(" ").map(Number);
    moreFindings(button, i - first - shown + 1);
  }
  const e = document.getElementById(id);
  for (let d = e.closest("details"); d; d = d.parentElement.closest("details")) d.open = true;
  if (matchMedia("(max-width: 640px)").matches) closeCard();
  e.tabIndex = -1;
  e.focus({ preventScroll: true });
  e.scrollIntoView({ block: "center" });
}
