// Lets the search of the site run from a folder: a browser starts no worker from a file, so a hidden frame stands for it.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.frame = frame;
      const inside = frame.contentWindow;
      this.started = new Promise((started) => {
        inside.importScripts = (...urls) =>
          Promise.all(urls.map((each) => this.load(new URL(each, url)))).then(() => undefined);
        inside.postMessage = (data) => {
          // As a worker does it: a copy, and later.
          const event = new MessageEvent("message", { data: structuredClone(data) });
          setTimeout(() => {
            this.dispatchEvent(event);
            this.onmessage?.(event);
          });
        };
        this.load(url).then(started);
      });
    }

    load(url) {
      return new Promise((loaded, failed) => {
        const script = this.frame.contentDocument.createElement("script");
        script.src = url;
        script.onload = loaded;
        script.onerror = failed;
        this.frame.contentDocument.body.append(script);
      });
    }

    postMessage(data) {
      const inside = this.frame.contentWindow;
      const event = new inside.MessageEvent("message", { data: structuredClone(data) });
      this.started.then(() => setTimeout(() => inside.dispatchEvent(event)));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
