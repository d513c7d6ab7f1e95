// The site's search runs in a worker, which browsers refuse to a page that is opened as a file. There,
// the worker's script runs in a hidden frame. The file's name keeps Zensical's plugin `offline` from
// loading such code from the network.

/** @typedef {((event: any) => void) | null} Listener */

const copied = (/** @type {unknown} */ data) =>
  new MessageEvent("message", { data: structuredClone(data) });

class FrameWorker {
  /** @type {Listener} */ onmessage = null;
  /** @type {Listener} */ onerror = null;
  /** @type {Listener} */ onmessageerror = null;

  /** @param {string} address */
  constructor(address) {
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    this.inside = /** @type {Window} */ (this.frame.contentWindow);
    const postMessage = (/** @type {unknown} */ data) =>
      setTimeout(() => this.onmessage?.(copied(data)));
    Object.assign(this.inside, { postMessage });
    const script = this.inside.document.createElement("script");
    script.src = new URL(address, location.href).href;
    this.loaded = new Promise((resolve) => script.addEventListener("load", resolve));
    script.addEventListener("error", (event) => this.onerror?.(event));
    this.inside.document.body.append(script);
  }

  /** @param {unknown} data */
  async postMessage(data) {
    await this.loaded;
    this.inside.dispatchEvent(copied(data));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") Object.assign(window, { Worker: FrameWorker });
