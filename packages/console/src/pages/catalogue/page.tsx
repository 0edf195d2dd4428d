import { PageHead } from "../../ui/page.tsx";
import { ModelList } from "../models/model-list.tsx";

export function Page() {
  return (
    <>
      <PageHead title="Catalogue">
        The models that you can call: where each runs, what it can do, what it costs and how soon it answers.
      </PageHead>
      <ModelList />
    </>
  );
}
