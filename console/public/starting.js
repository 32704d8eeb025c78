// Before the page's own code: should that or its style not arrive, because the server has just gone
// away, the page says so and is loaded anew as soon as the server answers.
(() => {
  const EVERY = 1000;
  const LONGEST = 60_000;
  const KEY = "redrive-starts";
  let waiting = false;

  function say() {
    const root = document.getElementById("root");
    if (root === null || root.childElementCount > 0) return;
    const words = document.createElement("p");
    words.setAttribute("role", "alert");
    words.textContent = "The server cannot be reached. This page opens as soon as it answers.";
    root.append(words);
  }

  /** Should something else than the server keep the code away, the page is not loaded for ever. */
  function pause() {
    try {
      const starts = Number(sessionStorage.getItem(KEY) ?? 0);
      sessionStorage.setItem(KEY, String(starts + 1));
      return Math.min(EVERY * 2 ** starts, LONGEST);
    } catch {
      return LONGEST;
    }
  }

  async function waitForIt() {
    if (waiting) return;
    waiting = true;
    const every = pause();
    for (;;) {
      say();
      await new Promise((resolve) => setTimeout(resolve, every));
      try {
        if ((await fetch("/healthz", { cache: "no-store" })).ok) return location.reload();
      } catch {
        // Still away.
      }
    }
  }

  addEventListener(
    "error",
    ({ target }) => {
      const code = target instanceof HTMLScriptElement;
      const style = target instanceof HTMLLinkElement && target.rel === "stylesheet";
      if (code || style) void waitForIt();
    },
    true,
  );
  addEventListener("load", () => {
    try {
      if (!waiting) sessionStorage.removeItem(KEY);
    } catch {
      // Storage is off: nothing was kept.
    }
  });
})();
