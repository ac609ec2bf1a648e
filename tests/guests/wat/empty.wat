;; A component that imports and exports nothing.
(component)
