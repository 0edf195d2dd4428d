import { CLI_SIGN_IN_PATH } from "@model-gateway/client";
import { type ComponentType, createElement, lazy, useState } from "react";
import { client } from "../lib/client.ts";
import { matchPath } from "../lib/router.ts";
import { Told } from "../lib/told.ts";
import type { IconName } from "../ui/icons.tsx";

export interface PageProps {
  params: Record<string, string>;
}

type Loader = () => Promise<{ Page: ComponentType<PageProps> }>;

const MISSING = "The service is unreachable, or it was updated after this tab was opened. Reload the tab.";

/** A page in a file of its own. One that is there already is shown at once, without a moment of skeleton. */
function page(load: Loader) {
  let ready: ComponentType<PageProps> | null = null;
  const preload = async () => {
    ready = (await load()).Page;
    return { default: ready };
  };
  const Lazy = lazy(() =>
    preload().catch(() => {
      // Finds out whether the service is away: if so, the page is loaded again when it is back.
      void client.rest.health().catch(() => {});
      throw new Told("This page could not be loaded", MISSING, true);
    }),
  );
  // Chosen when it is mounted: to change it later would throw the page's state away.
  const Component = (props: PageProps) => {
    const [chosen] = useState<ComponentType<PageProps>>(() => ready ?? Lazy);
    return createElement(chosen, props);
  };
  return { Component, preload };
}

export interface PageEntry {
  /** The first pattern is the page's own address. */
  patterns: readonly string[];
  title: string;
  icon: IconName;
  section: "work" | "media" | "operate" | "about";
  adminOnly?: boolean;
  /** Not in the rail: reached from another page. */
  hidden?: boolean;
  Component: ComponentType<PageProps>;
  /** Fetches the page's file, so that it can be shown without waiting. */
  preload(): Promise<unknown>;
}

/** Every page, once: the rail, the palette and the router come from here. */
export const PAGES: readonly PageEntry[] = [
  {
    patterns: ["/"],
    title: "Overview",
    icon: "overview",
    section: "work",
    ...page(() => import("./overview/page.tsx")),
  },
  {
    patterns: ["/playground"],
    title: "Playground",
    icon: "playground",
    section: "work",
    ...page(() => import("./playground/page.tsx")),
  },
  {
    patterns: ["/catalogue"],
    title: "Catalogue",
    icon: "models",
    section: "work",
    ...page(() => import("./catalogue/page.tsx")),
  },
  {
    patterns: ["/usage"],
    title: "Usage",
    icon: "usage",
    section: "work",
    ...page(() => import("./usage/page.tsx")),
  },
  {
    patterns: ["/requests"],
    title: "Requests",
    icon: "requests",
    section: "work",
    ...page(() => import("./requests/page.tsx")),
  },
  {
    patterns: ["/batches"],
    title: "Batches",
    icon: "batches",
    section: "work",
    ...page(() => import("./batches/page.tsx")),
  },
  {
    patterns: ["/keys"],
    title: "Keys",
    icon: "keys",
    section: "work",
    ...page(() => import("./keys/page.tsx")),
  },
  {
    patterns: ["/keys/:id/first-call"],
    title: "First call",
    icon: "keys",
    section: "work",
    hidden: true,
    ...page(() => import("./keys/first-call.tsx")),
  },
  {
    patterns: ["/groups", "/groups/:id", "/groups/:id/:tab"],
    title: "Groups",
    icon: "groups",
    section: "work",
    ...page(() => import("./groups/page.tsx")),
  },
  {
    patterns: ["/wallet"],
    title: "Wallet",
    icon: "wallet",
    section: "work",
    ...page(() => import("./wallet/page.tsx")),
  },
  {
    patterns: ["/conversations", "/conversations/:id"],
    title: "Conversations",
    icon: "conversations",
    section: "media",
    ...page(() => import("./conversations/page.tsx")),
  },
  {
    patterns: ["/memory"],
    title: "Memory",
    icon: "memory",
    section: "media",
    ...page(() => import("./memory/page.tsx")),
  },
  {
    patterns: ["/video"],
    title: "Video",
    icon: "video",
    section: "media",
    ...page(() => import("./video/page.tsx")),
  },
  {
    patterns: ["/voice"],
    title: "Voice",
    icon: "voice",
    section: "media",
    ...page(() => import("./voice/page.tsx")),
  },
  {
    patterns: ["/models", "/models/:tab"],
    title: "Models & backends",
    icon: "backends",
    section: "operate",
    adminOnly: true,
    ...page(() => import("./models/page.tsx")),
  },
  {
    patterns: ["/nodes"],
    title: "Nodes",
    icon: "nodes",
    section: "operate",
    adminOnly: true,
    ...page(() => import("./nodes/page.tsx")),
  },
  {
    patterns: ["/users"],
    title: "Users",
    icon: "person",
    section: "operate",
    adminOnly: true,
    ...page(() => import("./users/page.tsx")),
  },
  {
    patterns: ["/users/:id"],
    title: "User",
    icon: "person",
    section: "operate",
    adminOnly: true,
    hidden: true,
    ...page(() => import("./users/person.tsx")),
  },
  {
    patterns: ["/audit"],
    title: "Audit log",
    icon: "shield",
    section: "operate",
    adminOnly: true,
    ...page(() => import("./audit/page.tsx")),
  },
  {
    patterns: ["/docs", "/docs/:name", "/docs/:folder/:name"],
    title: "Documentation",
    icon: "docs",
    section: "about",
    ...page(() => import("./docs/page.tsx")),
  },
  {
    patterns: ["/settings"],
    title: "Settings",
    icon: "settings",
    section: "about",
    ...page(() => import("./settings/page.tsx")),
  },
  {
    patterns: [CLI_SIGN_IN_PATH],
    title: "Sign in the command line",
    icon: "shield",
    section: "about",
    hidden: true,
    ...page(() => import("./cli-sign-in.tsx")),
  },
  {
    patterns: ["/join"],
    title: "Join a group",
    icon: "groups",
    section: "work",
    hidden: true,
    ...page(() => import("./groups/join.tsx")),
  },
];

export function findPage(path: string) {
  for (const entry of PAGES) {
    for (const pattern of entry.patterns) {
      const params = matchPath(pattern, path);
      if (params) return { entry, params };
    }
  }
  return null;
}
