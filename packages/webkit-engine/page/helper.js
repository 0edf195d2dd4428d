/*
 * What the extension does in script. It runs in a world of the engine's own, which no page can reach, once for
 * each document; the objects that it is handed may belong to the page's world or to another one of the document.
 */
(native, firstNodeId) => {
  const charsMax = 10_000;
  const previewEntriesMax = 5;
  const previewCharsMax = 100;
  const elementsMax = 100_000;
  const toStringOf = Object.prototype.toString;
  const nodeTypeOf = Object.getOwnPropertyDescriptor(Node.prototype, "nodeType").get;
  const closedRoots = new WeakMap();
  const nodeIds = new WeakMap();
  const nodesById = new Map();
  const forgotten = new FinalizationRegistry((id) => nodesById.delete(id));
  let lastNodeId = firstNodeId;

  const cut = (text, max) => (text.length > max ? `${text.slice(0, max)}…` : text);

  function isNode(value) {
    try {
      return nodeTypeOf.call(value) > 0;
    } catch {
      return false;
    }
  }

  /** A property without running what the page may have put behind it. */
  function plainProperty(object, name) {
    for (let at = object, depth = 0; at && depth < 10; at = Object.getPrototypeOf(at), depth++) {
      const found = Object.getOwnPropertyDescriptor(at, name);
      if (found) return "value" in found ? found.value : undefined;
    }
    return undefined;
  }

  const isError = (value) => toStringOf.call(value) === "[object Error]" || value instanceof DOMException;

  function describeError(error) {
    const isOwn = error instanceof DOMException;
    const name = String((isOwn ? error.name : plainProperty(error, "name")) ?? "Error");
    const message = String((isOwn ? error.message : plainProperty(error, "message")) ?? "");
    const stack = plainProperty(error, "stack");
    const lines = typeof stack === "string" ? stack.split("\n").filter(Boolean) : [];
    const places = lines.map((line) => `\n    at ${line}`).join("");
    return cut((message ? `${name}: ${message}` : name) + places, charsMax);
  }

  function subtypeOf(value) {
    if (Array.isArray(value)) return "array";
    if (isNode(value)) return "node";
    if (isError(value)) return "error";
    const tag = toStringOf.call(value).slice(8, -1);
    const known = ["RegExp", "Date", "Map", "Set", "WeakMap", "WeakSet", "Promise", "Proxy", "ArrayBuffer"];
    return known.includes(tag) ? tag.toLowerCase() : undefined;
  }

  function classOf(value) {
    const made = plainProperty(value, "constructor");
    const name = typeof made === "function" ? plainProperty(made, "name") : undefined;
    return typeof name === "string" && name ? name : toStringOf.call(value).slice(8, -1);
  }

  function describeNodeShortly(node) {
    if (node.nodeType !== 1) return node.nodeName.toLowerCase();
    const id = node.id ? `#${node.id}` : "";
    const classes = typeof node.className === "string" ? node.className.trim().split(/\s+/) : [];
    return (
      node.localName +
      id +
      classes
        .filter(Boolean)
        .map((name) => `.${name}`)
        .join("")
    );
  }

  function describeObject(value, subtype) {
    if (subtype === "array") return `Array(${value.length})`;
    if (subtype === "node") return describeNodeShortly(value);
    if (subtype === "error") return describeError(value);
    if (subtype === "regexp" || subtype === "date") return String(value);
    return classOf(value);
  }

  function previewEntry(name, value) {
    const { type, subtype, description, value: plain, unserializableValue } = remoteObject(value, false);
    const text =
      unserializableValue ?? (type === "object" ? description : plain === undefined ? type : plain);
    const shown = subtype === "null" ? "null" : type === "function" ? "" : String(text);
    return { name, type, subtype, value: cut(shown, previewCharsMax) };
  }

  function previewOf(value, subtype) {
    const names = Object.keys(value);
    const entriesMax = subtype === "array" ? 100 : previewEntriesMax;
    const properties = names
      .slice(0, entriesMax)
      .map((name) => previewEntry(name, plainProperty(value, name)));
    return {
      type: "object",
      subtype,
      description: classOf(value),
      overflow: names.length > entriesMax,
      properties,
    };
  }

  /** The protocol's RemoteObject, without its id. */
  function remoteObject(value, withPreview) {
    const type = typeof value;
    if (value === null) return { type: "object", subtype: "null", value: null };
    if (type === "undefined") return { type };
    if (type === "string") return { type, value };
    if (type === "boolean") return { type, value, description: String(value) };
    if (type === "number") {
      const isPlain = Number.isFinite(value) && !Object.is(value, -0);
      const description = Object.is(value, -0) ? "-0" : String(value);
      return isPlain ? { type, value, description } : { type, unserializableValue: description, description };
    }
    if (type === "bigint") return { type, unserializableValue: `${value}n`, description: `${value}n` };
    if (type === "symbol") return { type, description: value.toString() };
    if (type === "function")
      return {
        type,
        className: "Function",
        description: cut(Function.prototype.toString.call(value), charsMax),
      };
    const subtype = subtypeOf(value);
    const found = { type, subtype, className: classOf(value), description: describeObject(value, subtype) };
    if (withPreview && subtype !== "node" && subtype !== "error") found.preview = previewOf(value, subtype);
    return found;
  }

  function describe(value, byValue, withPreview) {
    let found;
    try {
      found = remoteObject(value, withPreview);
    } catch {
      found = { type: typeof value, description: "Object" };
    }
    if (byValue && found.type === "object" && found.subtype !== "null")
      found = { type: "object", subtype: found.subtype, value };
    if (withPreview && found.type === "string") found.value = cut(found.value, charsMax);
    return JSON.stringify(found);
  }

  const needsId = (value) => value !== null && /^(object|function|symbol)$/.test(typeof value);

  function call(callee, self, args) {
    try {
      return { ok: true, value: Reflect.apply(callee, self, args) };
    } catch (error) {
      return { ok: false, value: error };
    }
  }

  function isThenable(value) {
    return needsId(value) && typeof value === "object" && typeof value.then === "function";
  }

  async function settle(value, id) {
    try {
      native.settled(id, true, await value);
    } catch (error) {
      native.settled(id, false, error);
    }
  }

  function properties(object) {
    const names = Reflect.ownKeys(object).slice(0, 10_000);
    return names.map((name) => ({ name: String(name), value: plainProperty(object, name) }));
  }

  function idOf(node) {
    let id = nodeIds.get(node);
    if (id === undefined) {
      id = ++lastNodeId;
      nodeIds.set(node, id);
      nodesById.set(id, new WeakRef(node));
      forgotten.register(node, id);
    }
    return id;
  }

  const nodeById = (id) => nodesById.get(id)?.deref() ?? null;

  function describeNode(node, depth, pierce) {
    let left = elementsMax;
    function visit(at, depthLeft) {
      left--;
      const found = {
        nodeId: 0,
        backendNodeId: idOf(at),
        nodeType: at.nodeType,
        nodeName: at.nodeName,
        localName: at.localName ?? "",
        nodeValue: cut(at.nodeValue ?? "", charsMax),
        childNodeCount: at.childNodes.length,
      };
      if (at.nodeType === 1) {
        if (/^(iframe|frame|object|embed)$/.test(at.localName))
          found.frameId = native.frameOf(at) || undefined;
        const root = at.shadowRoot ?? closedRoots.get(at);
        if (root && (depthLeft !== 0 || pierce)) found.shadowRoots = [visit(root, pierce ? depthLeft : 0)];
      } else if (at.nodeType === 11 && at.host) found.shadowRootType = at.host.shadowRoot ? "open" : "closed";
      if (depthLeft !== 0) {
        const children = [];
        for (let child = at.firstChild; child && left > 0; child = child.nextSibling)
          if (child.nodeType === 1) children.push(visit(child, depthLeft - 1));
        found.children = children;
      }
      return found;
    }
    return JSON.stringify({ node: visit(node, depth) });
  }

  function metrics() {
    const root = document.scrollingElement ?? document.documentElement;
    const view = {
      pageX: Math.round(scrollX),
      pageY: Math.round(scrollY),
      clientWidth: root?.clientWidth || innerWidth,
      clientHeight: root?.clientHeight || innerHeight,
    };
    const size = {
      x: 0,
      y: 0,
      width: Math.max(root?.scrollWidth ?? 0, view.clientWidth),
      height: Math.max(root?.scrollHeight ?? 0, view.clientHeight),
    };
    return JSON.stringify({
      layoutViewport: view,
      cssLayoutViewport: view,
      contentSize: size,
      cssContentSize: size,
    });
  }

  /** Says how the page lies then. */
  function scrollDocument(x, y) {
    scrollTo({ left: x, top: y, behavior: "instant" });
    return metrics();
  }

  /** Calls back at the next frame; a page that is not drawn gets there by time. */
  function nextFrame(id) {
    const timer = setTimeout(() => native.settled(id, true, undefined), 100);
    requestAnimationFrame(() => {
      clearTimeout(timer);
      setTimeout(() => native.settled(id, true, undefined), 0);
    });
  }

  const isFileField = (node) => node instanceof HTMLInputElement && node.type === "file";

  addEventListener(
    "click",
    (event) => {
      const [target] = event.composedPath();
      const field = target instanceof Element ? target.closest("input, label") : null;
      const input = field instanceof HTMLLabelElement ? field.control : field;
      if (isFileField(input)) native.fileField(idOf(input));
    },
    { capture: true },
  );

  /** The click that opens the chooser is not the page's business. */
  function openChooser(field) {
    if (!isFileField(field) || field.disabled) return false;
    const hide = (event) => event.stopImmediatePropagation();
    addEventListener("click", hide, { capture: true });
    field.click();
    removeEventListener("click", hide, { capture: true });
    return true;
  }

  // A step in the history that leaves the address as it is shows nowhere else.
  if (parent === window) addEventListener("popstate", () => native.stepped(location.href));

  return {
    address: () => location.href,
    call,
    describe,
    describeNode,
    idOf,
    isThenable,
    metrics,
    needsId,
    nextFrame,
    nodeById,
    openChooser,
    properties,
    scrollTo: scrollDocument,
    settle,
    keepClosedRoot: (host, root) => closedRoots.set(host, root),
    isParent: (other) => parent === other,
  };
};
