// The editor is larger than the rest of the console: it is loaded when it is first shown.
import { Suspense, type ComponentProps } from "react";
import { loaded } from "../loaded";
import { Waiting } from "../Page";

const Loaded = loaded(() => import("./Code"));

export function Code(props: ComponentProps<typeof Loaded>) {
  return (
    <Suspense fallback={<Waiting lines={5} />}>
      <Loaded {...props} />
    </Suspense>
  );
}
