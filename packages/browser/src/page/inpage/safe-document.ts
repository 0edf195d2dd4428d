/**
 * The real document, even when the page's images and forms shadow its properties: with `<img name="body">`,
 * `document.body` is that picture, in every world. Asked through its prototype it does not look at names.
 */
export function safeDocument(real: Document): Document {
  const bound = new Map<PropertyKey, unknown>();
  const safe = new Proxy({} as Document, {
    get(_, name) {
      if (bound.has(name)) return bound.get(name);
      const value: unknown = Reflect.get(Object.getPrototypeOf(real) as object, name, real);
      if (typeof value !== "function") return value;
      const method: unknown = value.bind(real);
      bound.set(name, method);
      return method;
    },
  });
  // The other way to the document leads here too, so that both are the same.
  const getRootNode = Node.prototype.getRootNode;
  Node.prototype.getRootNode = function (this: Node, options?: GetRootNodeOptions): Node {
    const root = getRootNode.call(this, options);
    return root === real ? safe : root;
  };
  return safe;
}
