import { Component, type ReactNode, Suspense, useEffect, useState } from "react";
import { online, session } from "./lib/client.ts";
import { usePath } from "./lib/router.ts";
import { useStore } from "./lib/store.ts";
import { Told } from "./lib/told.ts";
import { findPage } from "./pages/index.ts";
import { SignIn } from "./pages/sign-in.tsx";
import { SignedIn } from "./pages/signed-in.tsx";
import { Welcome } from "./pages/welcome.tsx";
import { Shell } from "./shell/shell.tsx";
import { Toasts } from "./shell/toasts.tsx";
import { NotFound } from "./ui/page.tsx";
import { PageSkeleton } from "./ui/skeleton.tsx";
import { Failure } from "./ui/states.tsx";

export function App() {
  const current = useStore(session);
  const connected = useStore(online);
  const isBack = usePath() === "/signed-in";
  if (current === undefined) return null;
  return (
    <div className={connected ? undefined : "offline"}>
      {isBack ? (
        <SignedIn />
      ) : current === null ? (
        <Entrance />
      ) : (
        <Shell user={current.user} online={connected}>
          <CurrentPage isAdmin={current.user.is_admin} />
        </Shell>
      )}
      <Toasts />
    </div>
  );
}

/** Someone who comes with a link is asked in by it; everyone else signs in. */
function Entrance() {
  const path = usePath();
  const [signsIn, setSignsIn] = useState(false);
  if (signsIn || (path !== "/welcome" && path !== "/join")) return <SignIn />;
  return <Welcome kind={path === "/join" ? "group" : "link"} onSignIn={() => setSignsIn(true)} />;
}

function CurrentPage({ isAdmin }: { isAdmin: boolean }) {
  const path = usePath();
  const found = findPage(path);
  useEffect(() => {
    document.title = `${found?.entry.title ?? "Not found"} · Model gateway`;
  }, [found?.entry.title]);
  if (!found || (found.entry.adminOnly && !isAdmin)) return <NotFound />;
  const { entry, params } = found;
  return (
    <PageBoundary key={entry.patterns[0]} preload={entry.preload}>
      <Suspense fallback={<PageSkeleton />}>
        <entry.Component params={params} />
      </Suspense>
    </PageBoundary>
  );
}

/** Keeps a crashing page from taking down the rest of the console. */
class PageBoundary extends Component<
  { children: ReactNode; preload(): Promise<unknown> },
  { error: unknown }
> {
  override state = { error: null as unknown };
  static getDerivedStateFromError(error: unknown) {
    return { error };
  }
  // A page whose file was missing stays lazy and failed until the file is there.
  readonly #retry = () =>
    void this.props.preload().then(
      () => this.setState({ error: null }),
      () => {},
    );
  readonly #unsubscribe = online.subscribe(() => {
    if (this.state.error instanceof Told && online.get()) this.#retry();
  });
  override componentWillUnmount() {
    this.#unsubscribe();
  }
  override render() {
    if (this.state.error === null) return this.props.children;
    return <Failure error={this.state.error} onRetry={this.#retry} />;
  }
}
