/*
 * Runs in the page's own world, in each new document, before the page's script. What pages do with closed shadow
 * roots and WebSockets can be seen nowhere else. `native` is known to nobody but the functions below.
 */
(native) => {
  const { apply, construct } = Reflect;
  const { defineProperty } = Object;
  const charsMax = 4_000;

  function replace(holder, name, make) {
    const original = holder[name];
    defineProperty(holder, name, {
      value: make(original),
      writable: true,
      enumerable: true,
      configurable: true,
    });
  }

  replace(Element.prototype, "attachShadow", (original) => {
    const { attachShadow } = {
      attachShadow(init) {
        const root = apply(original, this, [init]);
        if (root.mode === "closed") native.closedRoot(this, root);
        return root;
      },
    };
    return attachShadow;
  });

  if (!globalThis.WebSocket) return;

  const ids = new WeakMap();
  const { get: getId, set: setId } = ids;
  const { addEventListener } = EventTarget.prototype;
  const urlOf = Object.getOwnPropertyDescriptor(WebSocket.prototype, "url").get;
  const dataOf = Object.getOwnPropertyDescriptor(MessageEvent.prototype, "data").get;

  /** Text as it is, anything else by its size: its bytes are for the page alone. */
  function report(kind, socket, data) {
    const id = apply(getId, ids, [socket]);
    if (id === undefined) return;
    if (typeof data === "string") native.socketFrame(id, kind, 1, data.slice(0, charsMax));
    else native.socketFrame(id, kind, 2, `(${data?.byteLength ?? data?.size ?? 0} bytes)`);
  }

  function watch(socket) {
    const id = native.socketOpened(apply(urlOf, socket, []));
    apply(setId, ids, [socket, id]);
    const listen = (name, listener) => apply(addEventListener, socket, [name, listener]);
    listen("message", (event) => report("received", socket, apply(dataOf, event, [])));
    listen("error", () => native.socketFrame(id, "error", 0, ""));
    listen("close", () => native.socketFrame(id, "closed", 0, ""));
  }

  replace(WebSocket.prototype, "send", (original) => {
    const { send } = {
      send(data) {
        report("sent", this, data);
        return apply(original, this, [data]);
      },
    };
    return send;
  });

  /** An address that is refused is treated as one that does not exist. */
  const allowed = (address) => {
    try {
      const url = new URL(address, document.baseURI);
      url.protocol = url.protocol.replace("http", "ws");
      return native.maySocket(url.href) ? address : "ws://blocked.invalid/";
    } catch {
      return address;
    }
  };

  replace(globalThis, "WebSocket", (original) => {
    const watched = new Proxy(original, {
      construct(target, [address, ...rest], made) {
        const socket = construct(target, [allowed(address), ...rest], made === watched ? target : made);
        watch(socket);
        return socket;
      },
    });
    defineProperty(original.prototype, "constructor", { value: watched, writable: true, configurable: true });
    return watched;
  });
};
