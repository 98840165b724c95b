// Copy buttons for commands, on all pages.

async function copy(button) {
  const text = button.parentElement.querySelector("code").textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // no access to the clipboard, such as for a local file in some browsers
    const area = document.createElement("textarea");
    area.value = text;
    area.setAttribute("aria-hidden", "true");
    button.after(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  button.textContent = "Copied";
  document.getElementById("said").textContent = "Copied.";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

document.addEventListener("click", (e) => {
  const button = e.target.closest("[data-copy]");
  if (button) copy(button);
});

document.documentElement.classList.add("js");
