import { Icon } from "../ui/icons.tsx";

/** The one place that says that the service is away; what is on screen stays as it was. */
export function OfflineBanner() {
  return (
    <div className="banner" role="alert">
      <Icon name="warning" />
      The service cannot be reached; what you see may be old. Trying again.
    </div>
  );
}
