// The width of the page.
import { useSyncExternalStore } from 'react'

const narrow = matchMedia('(max-width: 700px)')

// useNarrow reports whether the page is as narrow as a phone: rows are drawn as cards.
export const useNarrow = () => useSyncExternalStore(changed => { narrow.addEventListener('change', changed); return () => narrow.removeEventListener('change', changed) }, () => narrow.matches)
