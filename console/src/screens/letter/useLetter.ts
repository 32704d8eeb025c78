// One letter and what belongs to it, each read by itself: none of it waits for another.
import { useQuery } from "@tanstack/react-query";
import { get } from "../../api/client";
import type { Letter, Selection } from "../../api/documents";

export function useLetter(id: string) {
  return useQuery({
    queryKey: ["letter", id],
    queryFn: ({ signal }) =>
      get("/api/v1/letters/{letter_id}", { path: { letter_id: id } }, { signal, exactly: true }),
    // No event tells when the broker has confirmed what is being sent.
    refetchInterval: ({ state }) => (state.data?.status === "dlq_processing" ? 5000 : false),
  });
}

/** The body as people read it; `edited`: as it would be sent now. */
export function useContent(id: string, edited: boolean, limit?: number) {
  return useQuery({
    queryKey: ["letter", id, "content", edited, limit],
    queryFn: ({ signal }) =>
      get(
        "/api/v1/letters/{letter_id}/content",
        { path: { letter_id: id }, query: { edited, ...(limit ? { limit } : {}) } },
        { signal },
      ),
  });
}

export function useNeighbours(id: string, filter: Selection) {
  return useQuery({
    queryKey: ["letters", "neighbours", id, JSON.stringify(filter)],
    queryFn: ({ signal }) =>
      get("/api/v1/letters/{letter_id}/neighbours", { path: { letter_id: id }, query: filter }, { signal }),
    retry: false,
  });
}

export function useClassification(id: string) {
  return useQuery({
    queryKey: ["letter", id, "classification"],
    queryFn: async ({ signal }) =>
      (await get("/api/v1/classifications", { query: { id: [id] } }, { signal })).items[0] ?? null,
  });
}

/** The content type of the original or of an edit; null if it has none. */
export function contentTypeOf({ properties }: Pick<Letter, "properties">): string | null {
  const type = properties["contentType"];
  return typeof type === "string" ? type : null;
}

/** The edit that is sent; undefined if the original is. */
export function standingEdit(letter: Letter) {
  return letter.edits.find((edit) => edit.stands);
}
