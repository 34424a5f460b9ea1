<?php

declare(strict_types=1);

// What Composer would write: the built package as its composer.json says, and the libraries of Debian.
require '/usr/share/php/GuzzleHttp/autoload.php';

const PACKAGE = __DIR__ . '/vendor/babelgate/client';

spl_autoload_register(static function (string $class): void {
    static $folders;
    $folders ??= json_decode(file_get_contents(PACKAGE . '/composer.json'), true)['autoload']['psr-4'];
    foreach ($folders as $prefix => $folder) {
        $file = PACKAGE . "/$folder" . str_replace('\\', '/', substr($class, strlen($prefix))) . '.php';
        if (str_starts_with($class, $prefix) && is_file($file)) {
            require $file;
            return;
        }
    }
});
