import { type ComponentType, lazy } from "react";
import type { IconName } from "../ui/icons.tsx";

export interface PageProps {
  params: Record<string, string>;
}

type Loader = () => Promise<{ Page: ComponentType<PageProps> }>;
const page = (load: Loader) => lazy(async () => ({ default: (await load()).Page }));

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
}

/** Every page, once: the rail, the palette and the router come from here. */
export const PAGES: readonly PageEntry[] = [
  {
    patterns: ["/"],
    title: "Overview",
    icon: "overview",
    section: "work",
    Component: page(() => import("./overview/page.tsx")),
  },
  {
    patterns: ["/playground"],
    title: "Playground",
    icon: "playground",
    section: "work",
    Component: page(() => import("./playground/page.tsx")),
  },
  {
    patterns: ["/usage"],
    title: "Usage",
    icon: "usage",
    section: "work",
    Component: page(() => import("./usage/page.tsx")),
  },
  {
    patterns: ["/keys"],
    title: "Keys",
    icon: "keys",
    section: "work",
    Component: page(() => import("./keys/page.tsx")),
  },
  {
    patterns: ["/keys/:id/first-call"],
    title: "First call",
    icon: "keys",
    section: "work",
    hidden: true,
    Component: page(() => import("./keys/first-call.tsx")),
  },
  {
    patterns: ["/groups", "/groups/:id", "/groups/:id/:tab"],
    title: "Groups",
    icon: "groups",
    section: "work",
    Component: page(() => import("./groups/page.tsx")),
  },
  {
    patterns: ["/wallet"],
    title: "Wallet",
    icon: "shield",
    section: "work",
    Component: page(() => import("./wallet/page.tsx")),
  },
  {
    patterns: ["/conversations", "/conversations/:id"],
    title: "Conversations",
    icon: "conversations",
    section: "media",
    Component: page(() => import("./conversations/page.tsx")),
  },
  {
    patterns: ["/memory"],
    title: "Memory",
    icon: "memory",
    section: "media",
    Component: page(() => import("./memory/page.tsx")),
  },
  {
    patterns: ["/video"],
    title: "Video",
    icon: "video",
    section: "media",
    Component: page(() => import("./video/page.tsx")),
  },
  {
    patterns: ["/voice"],
    title: "Voice",
    icon: "voice",
    section: "media",
    Component: page(() => import("./voice/page.tsx")),
  },
  {
    patterns: ["/models", "/models/:tab"],
    title: "Models & backends",
    icon: "backends",
    section: "operate",
    adminOnly: true,
    Component: page(() => import("./models/page.tsx")),
  },
  {
    patterns: ["/nodes"],
    title: "Nodes",
    icon: "nodes",
    section: "operate",
    adminOnly: true,
    Component: page(() => import("./nodes/page.tsx")),
  },
  {
    patterns: ["/docs", "/docs/:name", "/docs/:folder/:name"],
    title: "Documentation",
    icon: "docs",
    section: "about",
    Component: page(() => import("./docs/page.tsx")),
  },
  {
    patterns: ["/settings"],
    title: "Settings",
    icon: "settings",
    section: "about",
    Component: page(() => import("./settings/page.tsx")),
  },
  {
    patterns: ["/join"],
    title: "Join a group",
    icon: "groups",
    section: "work",
    hidden: true,
    Component: page(() => import("./groups/join.tsx")),
  },
];
