// Search in pages that are opened as files. A browser starts no worker from a file, so the script of the worker runs in a
// hidden frame. Over HTTP this is not loaded.
window.Worker = class extends EventTarget {
  constructor(url) {
    super();
    this.waiting = [];
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inside = frame.contentWindow;
    this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    const script = this.inside.document.createElement("script");
    script.onload = () => {
      const waiting = this.waiting;
      this.waiting = null;
      waiting.forEach((data) => this.postMessage(data));
    };
    script.src = url;
    this.inside.document.body.append(script);
  }

  postMessage(data) {
    if (this.waiting) this.waiting.push(data);
    else this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
  }
};
