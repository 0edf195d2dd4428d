/** Which addresses a page may be sent to: no local files, and no link-local or metadata service by default. */

export interface UrlPolicy {
  allowFile: boolean;
  allowLinkLocal: boolean;
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
  "[fd00:ec2::254]",
  "[fd20:ce::254]",
]);

export function isLinkLocalHost(hostname: string): boolean {
  const host = hostname.toLowerCase().replace(/\.$/, "");
  if (metadataHosts.has(host) || /^169\.254\.\d+\.\d+$/.test(host)) return true;
  const bare = host.replace(/^\[|\]$/g, "");
  // fe80::/10, and 169.254.0.0/16 written as an IPv4-mapped or -translated address.
  return /^fe[89ab][0-9a-f]:/.test(bare) || /^(::ffff:(0:)?|64:ff9b::)(a9fe:|169\.254\.)/.test(bare);
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
