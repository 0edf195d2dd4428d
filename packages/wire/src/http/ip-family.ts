/** Four numbers up to 255, without leading zeros. */
const IPV4 = /^(?:(?:\d|[1-9]\d|1\d\d|2[0-4]\d|25[0-5])(?:\.(?!$)|$)){4}$/;

/** As `isIP` of node:net, which takes 10 ms to load: only a text that may be an IPv6 address needs it. */
export function ipFamily(text: string): 0 | 4 | 6 {
  if (IPV4.test(text)) return 4;
  return text.includes(":") && process.getBuiltinModule("node:net").isIPv6(text) ? 6 : 0;
}
