/** The command line of a Chromium that nobody watches: no first-run noise, no background traffic, no throttling. */

const disabledFeatures = [
  "Translate",
  "MediaRouter",
  "OptimizationHints",
  "AutofillServerCommunication",
  "HttpsUpgrades",
  "NetworkTimeServiceQuerying",
  "DestroyProfileOnBrowserClose",
  // Parts of the window that are web pages themselves and would start renderers of their own.
  "WebUIOmniboxPopup",
  "WebUIOmniboxAimPopup",
  "WebUIOmniboxFullPopup",
  "WebUIReloadButton",
  "WebUIToolbar",
  "PreloadTopChromeWebUI",
];

/** Nothing listens there. Chromium's calls home have no off switch, so we point them at a dead port. */
const nowhere = "http://127.0.0.1:1/";

const quietFlags = [
  "--no-first-run",
  "--no-default-browser-check",
  "--disable-background-networking",
  "--disable-component-update",
  `--component-updater=url-source=${nowhere}`,
  `--gaia-url=${nowhere}`,
  "--disable-default-apps",
  "--disable-extensions",
  "--disable-sync",
  "--disable-breakpad",
  "--disable-crash-reporter",
  "--disable-client-side-phishing-detection",
  "--disable-field-trial-config",
  "--disable-hang-monitor",
  "--disable-ipc-flooding-protection",
  "--disable-prompt-on-repost",
  "--disable-search-engine-choice-screen",
  "--disable-backgrounding-occluded-windows",
  "--disable-background-timer-throttling",
  // Otherwise clicks are dropped until a new document has been drawn.
  "--allow-pre-commit-input",
  // A page that comes back from this cache brings its frames along without saying so.
  "--disable-back-forward-cache",
  // Allows windows that a script opens late, after a server's answer.
  "--disable-popup-blocking",
  "--disable-renderer-backgrounding",
  "--metrics-recording-only",
  "--password-store=basic",
  "--use-mock-keychain",
  "--mute-audio",
  // Wheel scrolling without animation, so that a result shows the final position.
  "--disable-smooth-scrolling",
  "--force-color-profile=srgb",
  `--disable-features=${disabledFeatures.join(",")}`,
];

/** What the caller of the browser decides. */
export interface ChosenFlags {
  headful: boolean;
  proxy?: string;
  /** Hosts that bypass the proxy. */
  proxyBypass?: readonly string[];
  /** Accepts self-signed certificates. */
  ignoreHttpsErrors?: boolean;
  viewport: { width: number; height: number };
  extraFlags?: readonly string[];
}

interface FlagOptions extends ChosenFlags {
  profileDir: string;
  /** Chromium's own sandbox cannot be used by root, nor where the kernel forbids user namespaces. */
  sandbox: boolean;
  /** Large pages crash a Chromium that runs out of /dev/shm. */
  smallSharedMemory: boolean;
}

export function chromiumFlags(options: FlagOptions): string[] {
  const { profileDir, headful, proxy, sandbox, ignoreHttpsErrors, smallSharedMemory, viewport } = options;
  const flags = [
    "--remote-debugging-pipe",
    `--user-data-dir=${profileDir}`,
    `--window-size=${viewport.width},${viewport.height}`,
    ...quietFlags,
  ];
  if (!headful) flags.push("--headless=new", "--hide-scrollbars", "--disable-gpu");
  if (!sandbox) flags.push("--no-sandbox");
  if (ignoreHttpsErrors) flags.push("--ignore-certificate-errors");
  if (smallSharedMemory) flags.push("--disable-dev-shm-usage");
  // Chromium's own bypass, which would let loopback and link-local addresses through, is taken back first.
  if (proxy)
    flags.push(
      `--proxy-server=${proxy}`,
      `--proxy-bypass-list=${["<-loopback>", ...(options.proxyBypass ?? [])].join(";")}`,
    );
  return [...flags, ...(options.extraFlags ?? []), "about:blank"];
}
