import { Icon } from "../ui/icons.tsx";

/** The only place that reports that the service is unreachable; the rest of the screen stays as it was. */
export function OfflineBanner() {
  return (
    <div className="banner" role="alert">
      <Icon name="warning" />
      The service cannot be reached; what you see may be old. Trying again.
    </div>
  );
}
