/** Waiting for the page to draw. */

/** Resolves once the next frame is drawn and everything that the page does in it is done. */
export function nextFrame(): Promise<void> {
  // A page in the background draws no frames; the timer keeps the wait alive there. On a busy machine a frame is late.
  const frameMsMax = document.hidden ? 100 : 500;
  return new Promise((resolve) => {
    let isDone = false;
    const done = () => {
      if (isDone) return;
      isDone = true;
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(done, frameMsMax);
    requestAnimationFrame(() => {
      // Other callbacks of the same frame may come after this one; a message comes after all of them.
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => {
        port1.close();
        done();
      };
      port2.postMessage(null);
    });
  });
}
