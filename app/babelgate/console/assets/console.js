// Live parts of pages, which htmx asks for again and again, and what is said when the gateway does not answer.
"use strict";

(() => {
  const live = document.getElementById("live");
  const trouble = document.getElementById("trouble");
  const KEY = "babelgate.live";
  let on = localStorage.getItem(KEY) !== "off";

  const isPoll = (event) => event.target.hasAttribute && event.target.hasAttribute("data-live");

  const show = () => {
    live.setAttribute("aria-pressed", String(on));
    live.textContent = on ? "Live" : "Paused";
  };

  if (live && document.querySelector("[data-live]")) {
    live.hidden = false;
    live.addEventListener("click", () => {
      on = !on;
      localStorage.setItem(KEY, on ? "on" : "off");
      show();
    });
    show();
  }

  const say = (text) => {
    if (trouble && (trouble.hidden || trouble.textContent !== text)) {
      trouble.textContent = text;
      trouble.hidden = false;
    }
  };

  // Nobody sees a hidden page, and what somebody selects or has the focus in must not be replaced.
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (!isPoll(event)) return;
    const part = event.target;
    const selection = getSelection();
    const selects = !selection.isCollapsed && part.contains(selection.anchorNode);
    const active = document.activeElement;
    const holds = active && part.contains(active) && active.matches("input, select, textarea, [contenteditable]");
    if (!on || document.hidden || selects || holds) event.preventDefault();
  });

  let focused = null;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const active = document.activeElement;
    focused = isPoll(event) && event.target.contains(active) ? active.getAttribute("href") : null;
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (focused === null) return;
    const same = [...event.target.querySelectorAll("a[href]")].find((each) => each.getAttribute("href") === focused);
    if (same) same.focus({preventScroll: true});
  });

  document.addEventListener("htmx:afterRequest", (event) => {
    if (isPoll(event) && event.detail.successful && trouble) trouble.hidden = true;
  });
  document.addEventListener("htmx:responseError", (event) => {
    const xhr = event.detail.xhr;
    if (xhr.status === 401) {
      location.reload();
      return;
    }
    const text = new DOMParser().parseFromString(xhr.responseText, "text/html").body.textContent.trim();
    say(text || `The gateway answered ${xhr.status}. The page shows an earlier state.`);
  });
  const silent = () => say("The gateway does not answer. The page shows an earlier state.");
  document.addEventListener("htmx:sendError", silent);
  document.addEventListener("htmx:timeout", silent);
})();
