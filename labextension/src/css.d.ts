/** Style sheets that are loaded with the code that needs them. */
declare module '*.css';
