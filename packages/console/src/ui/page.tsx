import type { ReactNode } from "react";
import { LinkButton } from "./controls.tsx";
import { Empty } from "./states.tsx";

export function PageHead({
  title,
  children,
  actions,
}: {
  title: ReactNode;
  children?: ReactNode;
  actions?: ReactNode;
}) {
  return (
    <div className="page-head">
      <div>
        <h1>{title}</h1>
        {children && <p>{children}</p>}
      </div>
      {actions && <div className="row wrap">{actions}</div>}
    </div>
  );
}

export function NotFound() {
  return (
    <Empty icon="search" title="Page not found" action={<LinkButton href="/">Go to the overview</LinkButton>}>
      The address may be mistyped, or the page is for administrators only.
    </Empty>
  );
}

export function Section({
  title,
  actions,
  children,
}: {
  title: string;
  actions?: ReactNode;
  children: ReactNode;
}) {
  return (
    <section>
      <div className="section-head">
        <h2>{title}</h2>
        {actions && <div className="row wrap">{actions}</div>}
      </div>
      {children}
    </section>
  );
}

export function Figure({
  name,
  value,
  unit,
  note,
  children,
}: {
  name: ReactNode;
  value: ReactNode;
  unit?: string;
  note?: ReactNode;
  children?: ReactNode;
}) {
  return (
    <div className="figure">
      <span className="name">{name}</span>
      <span className="value">
        {value}
        {unit && <small> {unit}</small>}
      </span>
      {note && <span className="note-line">{note}</span>}
      {children}
    </div>
  );
}
