/** Which addresses a page may be sent to: no local files, and no link-local or metadata service by default. */
import { BlockList } from "node:net";

export interface UrlPolicy {
  allowFile: boolean;
  allowLinkLocal: boolean;
  /** The only hosts that may be reached; empty: all. `*.example.com` stands for those below it. */
  allowHosts?: readonly string[];
  /** Hosts that may not be reached. */
  blockHosts?: readonly string[];
}

const openSchemes = new Set(["http:", "https:", "ws:", "wss:", "data:", "blob:"]);

/** Where cloud machines keep their credentials, apart from the link-local range. */
const metadataHosts = new Set([
  "metadata.google.internal",
  "metadata.goog",
  "metadata",
  "instance-data",
  "100.100.100.200",
  "192.0.0.192",
  "fd00:ec2::254",
  "fd20:ce::254",
]);

const dotted = (high: string, low: string) =>
  [high, low].flatMap((part) => [Number.parseInt(part, 16) >> 8, Number.parseInt(part, 16) & 255]).join(".");

/** An address in one form, without brackets and zone, however it is written; names as they are. */
function canonical(hostname: string): string {
  const host = hostname.toLowerCase().replace(/\.$/, "");
  // To connect to no address in particular is to connect to this machine.
  if (host === "0.0.0.0") return "127.0.0.1";
  if (!host.includes(":")) return host;
  const bare = host.replace(/^\[|\]$/g, "").replace(/%.*$/, "");
  const address = URL.parse(`http://[${bare}]/`)?.hostname.slice(1, -1) ?? bare;
  const mapped = /^::ffff:([0-9a-f]+):([0-9a-f]+)$/.exec(address);
  return mapped ? canonical(dotted(mapped[1]!, mapped[2]!)) : address === "::" ? "::1" : address;
}

/** Names and addresses, as URLs and as sockets write them. */
export function isLinkLocalHost(hostname: string): boolean {
  const host = canonical(hostname);
  if (metadataHosts.has(host) || /^169\.254\.\d+\.\d+$/.test(host)) return true;
  // fe80::/10, and 169.254.0.0/16 and the others inside of an IPv6 address: mapped, translated, 6to4.
  if (/^fe[89ab][0-9a-f]:/.test(host)) return true;
  const inside = /^(?:::(?:ffff:0:)?|64:ff9b::|2002:)([0-9a-f]{1,4}):([0-9a-f]{1,4})/.exec(host);
  return inside !== null && isLinkLocalHost(dotted(inside[1]!, inside[2]!));
}

const ownNetwork = new BlockList();
for (const [net, bits] of [
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["127.0.0.0", 8],
  ["172.16.0.0", 12],
  ["192.168.0.0", 16],
] as const)
  ownNetwork.addSubnet(net, bits);
ownNetwork.addSubnet("fc00::", 7, "ipv6");
ownNetwork.addAddress("::1", "ipv6");

/** An address of this machine or of a network that is not the internet. */
export function isPrivateAddress(address: string): boolean {
  const bare = canonical(address);
  return isLinkLocalHost(bare) || ownNetwork.check(bare, bare.includes(":") ? "ipv6" : "ipv4");
}

export const isListed = (host: string, patterns: readonly string[]) =>
  patterns.some((pattern) =>
    pattern.startsWith("*.") ? host.endsWith(pattern.slice(1).toLowerCase()) : host === canonical(pattern),
  );

export const hasHostList = ({ allowHosts = [], blockHosts = [] }: UrlPolicy) =>
  allowHosts.length + blockHosts.length > 0;

/** Null when connections to the host may be made, otherwise the reason against it. */
export function whyHostBlocked(
  hostname: string,
  { allowHosts = [], blockHosts = [] }: UrlPolicy,
): string | null {
  const host = canonical(hostname);
  if (isListed(host, blockHosts)) return `${host} is blocked (--block-host)`;
  if (allowHosts.length > 0 && !isListed(host, allowHosts))
    return `${host} is not among the allowed hosts (--allow-host)`;
  return null;
}

/** Null when the address may be opened, otherwise the reason against it. */
export function whyBlocked(address: string, policy: UrlPolicy): string | null {
  let url: URL;
  try {
    url = new URL(address);
  } catch {
    return `"${address}" is not a valid URL`;
  }
  if (url.protocol === "about:") return null;
  if (url.protocol === "file:")
    return policy.allowFile
      ? null
      : "file: addresses are blocked; start the tool with --allow-file to open them";
  if (!openSchemes.has(url.protocol)) return `${url.protocol} addresses are blocked; use http: or https:`;
  if (!policy.allowLinkLocal && isLinkLocalHost(url.hostname))
    return `${url.hostname} is a link-local or metadata address; start the tool with --allow-link-local to open it`;
  if (/^(https?|wss?):$/.test(url.protocol)) return whyHostBlocked(url.hostname, policy);
  return null;
}

/**
 * The patterns that make the browser stop a request and ask. They are wider than the rule and narrow enough that
 * an ordinary request is never stopped.
 */
export function suspectPatterns(policy: UrlPolicy): string[] {
  const patterns: string[] = [];
  if (!policy.allowFile) patterns.push("file:*");
  if (!policy.allowLinkLocal) {
    patterns.push("*169.254.*", "*://[[]*");
    patterns.push("*://metadata*", "*@metadata*", "*://instance-data*", "*@instance-data*");
    patterns.push("*100.100.100.200*", "*192.0.0.192*");
  }
  return patterns.map((pattern) => pattern.replace("[[]", "["));
}
