// Code that is loaded when it is first shown. If the server is away then, it is loaded as soon as the
// server is back; whoever waits sees `Waiting`, which says so.
import { lazy, type ComponentType, type LazyExoticComponent } from "react";
import { reached } from "../api/connection";
import { Problem } from "../api/problem";

/** So many failures while the server answers: it has another build, and this code no longer. */
const TRIES = 3;

export function loaded<Props>(
  load: () => Promise<{ default: ComponentType<Props> }>,
): LazyExoticComponent<ComponentType<Props>> {
  return lazy(() => untilThere(load));
}

async function untilThere<Module>(load: () => Promise<Module>): Promise<Module> {
  for (let failures = 1; ; failures += 1) {
    try {
      return await load();
    } catch {
      if (await reached()) failures = 0;
      else if (failures === TRIES) throw newer();
    }
  }
}

function newer(): Problem {
  return new Problem(0, "newer", "The server has another version of the console. Load the page anew to go on.");
}
