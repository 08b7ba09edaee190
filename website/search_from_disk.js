// A page that is read from a disk may start no worker. There its search runs in a hidden frame, which has the same origin.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inner = frame.contentWindow
      this.inner.postMessage = (data) => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        this.onmessage?.(event)
      }
      this.ready = new Promise((resolve, reject) => {
        const script = frame.contentDocument.createElement("script")
        Object.assign(script, { src: url, onload: resolve, onerror: reject })
        frame.contentDocument.body.append(script)
      })
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })))
    }
    terminate() {}
  }
}
