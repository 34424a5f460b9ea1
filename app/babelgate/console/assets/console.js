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

  // Nobody sees a hidden page, and what somebody selects, presses or has the focus in must not be replaced.
  const isHeld = (part) => {
    const selection = getSelection();
    const selects = !selection.isCollapsed && part.contains(selection.anchorNode);
    const active = document.activeElement;
    const holds = active && part.contains(active) && active.matches("input, select, textarea, [contenteditable]");
    return !on || document.hidden || selects || holds || part.querySelector(":active") !== null;
  };
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (isPoll(event) && isHeld(event.target)) event.preventDefault();
  });

  // The link with the focus, what was unfolded, and how far tables were scrolled, stay as they were.
  let kept = null;
  const scrolls = (part) => [...part.querySelectorAll(".scroll")];
  document.addEventListener("htmx:beforeSwap", (event) => {
    const active = document.activeElement;
    const part = event.target;
    // A search that the user asked for has the same target, and another address than an update that began before it.
    const {elt, path} = event.detail.requestConfig;
    if (isPoll(event) && elt === part && (isHeld(part) || path !== location.href)) {
      event.preventDefault();
      return;
    }
    kept = {
      href: part.contains(active) ? active.getAttribute("href") : null,
      label: part.contains(active) ? active.getAttribute("aria-label") : null,
      open: [...part.querySelectorAll("details[id][open]")].map((each) => each.id),
      scrolled: scrolls(part).map((each) => [each.scrollLeft, each.scrollTop]),
    };
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (kept === null) return;
    const part = event.target;
    kept.open.forEach((id) => part.querySelector(`#${CSS.escape(id)}`)?.setAttribute("open", ""));
    if (isPoll(event)) scrolls(part).forEach((each, index) => each.scrollTo(...(kept.scrolled[index] ?? [0, 0])));
    const same = [...part.querySelectorAll("a[href], [tabindex], summary")].find((each) =>
      kept.href !== null ? each.getAttribute("href") === kept.href
        : kept.label !== null && each.getAttribute("aria-label") === kept.label);
    if (same) same.focus({preventScroll: true});
    kept = null;
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
  // What pages keep in the tab is the user's.
  document.addEventListener("submit", (event) => {
    if (event.target.getAttribute("action")?.endsWith("sign-out")) sessionStorage.clear();
  });

  const silent = () => say("The gateway does not answer. The page shows an earlier state.");
  document.addEventListener("htmx:sendError", silent);
  document.addEventListener("htmx:timeout", silent);
})();
