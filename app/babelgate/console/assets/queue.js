// Pages of a queue: buttons that copy, lines of a form, and the clocks of leases, which survive a reload in the storage of the tab.
"use strict";

(() => {
  if (navigator.clipboard) {
    document.querySelectorAll("[data-copy]").forEach((button) => {
      button.hidden = false;
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
        button.textContent = "Copied";
      });
    });
  }

  // A place that a check names is selected in the text.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-line]");
    const text = document.getElementById("body");
    if (link === null || text === null) return;
    event.preventDefault();
    const lines = text.value.split("\n");
    const index = Math.min(Number(link.dataset.line), lines.length) - 1;
    const start = lines.slice(0, index).reduce((sum, line) => sum + line.length + 1, 0);
    text.focus();
    text.setSelectionRange(start, start + lines[index].length);
    text.scrollTop = text.scrollHeight * index / lines.length - text.clientHeight / 2;
  });

  const leases = document.querySelector("[data-leases]");
  if (leases === null) return;
  const csrf = document.querySelector("input[name=csrf]").value;
  const key = `babelgate.leases ${location.pathname}`;

  const duration = (seconds) =>
    seconds < 60 ? `${seconds} s` : seconds < 3600 ? `${Math.floor(seconds / 60)} min ${seconds % 60} s`
      : `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min`;

  // The gateway says how long a lease has left, because its clock may differ from this one.
  const tick = () => leases.querySelectorAll(".clock").forEach((clock) => {
    clock.dataset.until ??= String(Date.now() + 1000 * Number(clock.dataset.left));
    const left = Math.ceil((Number(clock.dataset.until) - Date.now()) / 1000);
    const text = left > 0 ? `leased for ${duration(left)}` : "The lease has ended: the queue delivers the message again";
    if (clock.textContent !== text) clock.textContent = text;
    clock.classList.toggle("warn", left <= 10 && left > 0);
    clock.classList.toggle("bad", left <= 0);
  });

  const ready = () => {
    leases.querySelectorAll("[data-extend]").forEach((form) => { form.hidden = false; });
    tick();
  };

  const keep = () => {
    const html = [...leases.querySelectorAll(".lease")].map((each) => each.outerHTML).join("");
    try {
      sessionStorage.setItem(key, JSON.stringify({csrf, html}));
    } catch {
      // The messages are larger than what a tab may store: a reload loses them, and their leases end.
      sessionStorage.removeItem(key);
    }
  };

  const restore = () => {
    const kept = JSON.parse(sessionStorage.getItem(key) ?? "null");
    if (kept === null || kept.csrf !== csrf) {
      sessionStorage.removeItem(key);
      return;
    }
    leases.insertAdjacentHTML("beforeend", kept.html);
    htmx.process(leases);
  };

  restore();
  ready();
  setInterval(tick, 1000);
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.target === leases) leases.querySelectorAll(".none").forEach((each) => each.remove());
  });
  document.addEventListener("htmx:afterSettle", () => { ready(); keep(); });
})();
