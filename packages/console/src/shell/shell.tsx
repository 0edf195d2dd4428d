import type { SessionUser } from "@model-gateway/client";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { busiestKeyPerMinute } from "../lib/activity.ts";
import { api } from "../lib/api.ts";
import { client, signOut } from "../lib/client.ts";
import { money, percent } from "../lib/format.ts";
import { limitTone, tightestLimit } from "../lib/limits.ts";
import { useQuery } from "../lib/query.ts";
import { Link, matchPath, usePath } from "../lib/router.ts";
import { useStore } from "../lib/store.ts";
import { isDark, setTheme, theme } from "../lib/theme.ts";
import { PAGES, type PageEntry } from "../pages/index.ts";
import { Button } from "../ui/controls.tsx";
import { Dialog } from "../ui/dialogs.tsx";
import { Icon, Mark } from "../ui/icons.tsx";
import { Meter } from "../ui/states.tsx";
import { OfflineBanner } from "./banner.tsx";
import { Palette } from "./palette.tsx";

const SECTIONS = { work: null, media: "Conversations & media", operate: "Operate", about: "About" } as const;
/** What fits at the bottom of a phone; the rest is behind "More". */
const BOTTOM = ["/", "/playground", "/usage", "/keys"];
const PLAN_EVERY_MS = 30_000;
const MAIN_ID = "content";

const isCurrent = (entry: PageEntry, path: string) =>
  entry.patterns.some((pattern) => matchPath(pattern, path)) || path.startsWith(`${entry.patterns[0]}/`);

export function Shell({
  user,
  online,
  children,
}: {
  user: SessionUser;
  online: boolean;
  children: ReactNode;
}) {
  const [finding, setFinding] = useState(false);
  useEffect(() => {
    const open = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== "k" || !(event.metaKey || event.ctrlKey)) return;
      event.preventDefault();
      setFinding(true);
    };
    addEventListener("keydown", open);
    return () => removeEventListener("keydown", open);
  }, []);
  const entries = PAGES.filter(({ hidden, adminOnly }) => !hidden && (!adminOnly || user.is_admin));
  return (
    <div className="shell">
      <a className="skip-link button primary" href={`#${MAIN_ID}`}>
        Skip to the content
      </a>
      <Rail entries={entries} />
      <div>
        {!online && <OfflineBanner />}
        <TopBar user={user} onFind={() => setFinding(true)} />
        <main className="page" id={MAIN_ID} tabIndex={-1}>
          {children}
        </main>
      </div>
      <BottomBar entries={entries} />
      {finding && <Palette entries={entries} isAdmin={user.is_admin} onClose={() => setFinding(false)} />}
    </div>
  );
}

function NavLink({ entry }: { entry: PageEntry }) {
  const path = usePath();
  // A page that is pointed at is most likely opened; a failure shows then.
  const fetchEarly = () => void entry.preload().catch(() => {});
  return (
    <Link
      onPointerEnter={fetchEarly}
      onFocus={fetchEarly}
      href={entry.patterns[0]}
      aria-current={isCurrent(entry, path) ? "page" : undefined}
      title={entry.title}
    >
      <Icon name={entry.icon} />
      <span>{entry.title}</span>
    </Link>
  );
}

function Brand() {
  return (
    <Link href="/" className="brand" aria-label="Model gateway: overview">
      <Mark />
      <span>Model gateway</span>
    </Link>
  );
}

function Rail({ entries }: { entries: readonly PageEntry[] }) {
  const health = useQuery("health", () => client.rest.health());
  return (
    <nav className="rail" aria-label="Pages">
      <Brand />
      <div className="rail-links">
        {Object.entries(SECTIONS).map(([section, title]) => {
          const own = entries.filter((entry) => entry.section === section);
          if (own.length === 0) return null;
          return (
            <div key={section}>
              {title && <p className="section">{title}</p>}
              {own.map((entry) => (
                <NavLink key={entry.title} entry={entry} />
              ))}
            </div>
          );
        })}
      </div>
      <div className="spacer" />
      <p className="rail-foot">{health.data ? `Version ${health.data.version}` : " "}</p>
    </nav>
  );
}

function TopBar({ user, onFind }: { user: SessionUser; onFind(): void }) {
  const apple = /Mac|iP(hone|ad)/.test(navigator.platform);
  return (
    <header className="bar">
      <Brand />
      <button type="button" className="find" onClick={onFind} title="Find anything, or do something">
        <Icon name="search" />
        <span className="grow" style={{ textAlign: "left" }}>
          Find
        </span>
        <kbd>{apple ? "⌘K" : "Ctrl K"}</kbd>
      </button>
      <div className="grow" />
      <LimitMeter />
      <ThemeSwitch />
      <AccountMenu user={user} />
    </header>
  );
}

/** The limit that is reached first: always in sight, never in the way. */
function LimitMeter() {
  const { data: plan } = useQuery("plan", () => api("billing.plan"), { everyMs: PLAN_EVERY_MS });
  const { data: perMinute } = useQuery("busiest key", busiestKeyPerMinute, { everyMs: PLAN_EVERY_MS });
  if (!plan) return null;
  const limit = tightestLimit(plan, perMinute);
  if (!limit)
    return (
      <Link href="/usage" className="spend" title={`The ${plan.current_tier} tier has no monthly limit`}>
        <span>{money(plan.usage.cost_usd)} this month</span>
        <span>Unlimited</span>
      </Link>
    );
  return (
    <Link
      href="/usage"
      className="spend"
      title={`Of the limits of the ${plan.current_tier} tier, the one you are closest to`}
    >
      <span className="row between">
        <span>{limit.words}</span>
        <span className="wide-only">{percent(limit.share)}</span>
      </span>
      <Meter
        share={limit.share}
        label={`Limit used: ${percent(limit.share)}`}
        tone={limitTone(limit.share)}
      />
    </Link>
  );
}

function ThemeSwitch() {
  const dark = isDark(useStore(theme));
  return (
    <Button
      look="quiet"
      icon={dark ? "sun" : "moon"}
      aria-label={dark ? "Switch to the light theme" : "Switch to the dark theme"}
      onClick={() => setTheme(dark ? "light" : "dark")}
    />
  );
}

function AccountMenu({ user }: { user: SessionUser }) {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const close = (event: Event) => {
      if (
        event instanceof KeyboardEvent ? event.key === "Escape" : !box.current?.contains(event.target as Node)
      )
        setOpen(false);
    };
    addEventListener("pointerdown", close);
    addEventListener("keydown", close);
    return () => {
      removeEventListener("pointerdown", close);
      removeEventListener("keydown", close);
    };
  }, [open]);
  return (
    <div className="menu" ref={box}>
      <Button
        look="quiet"
        icon="person"
        aria-label={`Account: ${user.email}`}
        aria-expanded={open}
        onClick={() => setOpen(!open)}
      />
      {open && (
        <div className="menu-list">
          <div style={{ padding: "6px 8px" }}>
            <strong>{user.name || user.email}</strong>
            <p className="muted small">
              {user.email}
              {user.is_admin && " · administrator"}
            </p>
          </div>
          <hr />
          <Link href="/settings" onClick={() => setOpen(false)}>
            <Icon name="settings" /> Settings
          </Link>
          <button type="button" onClick={() => void signOut()}>
            <Icon name="leave" /> Sign out
          </button>
        </div>
      )}
    </div>
  );
}

function BottomBar({ entries }: { entries: readonly PageEntry[] }) {
  const [more, setMore] = useState(false);
  const path = usePath();
  const atBottom = entries.filter(({ patterns }) => BOTTOM.includes(patterns[0]!));
  const isElsewhere = !atBottom.some((entry) => isCurrent(entry, path));
  return (
    <>
      <nav className="bottom-bar" aria-label="Main pages">
        {atBottom.map((entry) => (
          <NavLink key={entry.title} entry={entry} />
        ))}
        <button type="button" aria-current={isElsewhere ? "true" : undefined} onClick={() => setMore(true)}>
          <Icon name="more" />
          More
        </button>
      </nav>
      {more && (
        <Dialog title="All pages" onClose={() => setMore(false)}>
          {/* biome-ignore lint/a11y/useKeyWithClickEvents: following any link inside closes the dialog */}
          <nav className="more-nav" aria-label="All pages" onClick={() => setMore(false)}>
            {entries.map((entry) => (
              <NavLink key={entry.title} entry={entry} />
            ))}
          </nav>
        </Dialog>
      )}
    </>
  );
}
