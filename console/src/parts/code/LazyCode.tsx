// The editor is larger than the rest of the console: it is loaded when it is first shown.
import { lazy, Suspense, type ComponentProps } from "react";
import { Waiting } from "../Page";

const Loaded = lazy(() => import("./Code"));

export function Code(props: ComponentProps<typeof Loaded>) {
  return (
    <Suspense fallback={<Waiting lines={5} />}>
      <Loaded {...props} />
    </Suspense>
  );
}
