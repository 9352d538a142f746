import { defineConfig } from 'vite'

export default defineConfig({
  oxc: { jsx: { runtime: 'automatic' } },
  build: { license: { fileName: 'licenses.txt' }, assetsInlineLimit: 0, modulePreload: { polyfill: false }, reportCompressedSize: false },
  server: { proxy: { '/api': 'http://localhost:50051', '/auth': 'http://localhost:50051' } },
})
