// Package dashboard tests the web dashboard in a real browser, against a real
// server with data. The steps in the browser are in web/test/dashboard.mjs.
package dashboard
